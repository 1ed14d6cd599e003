"use strict";
// Sorts and filters the table of instances, and copies command lines.  Without scripts the page shows the same facts.
(() => {
  const table = document.getElementById("instances");
  const entries = Array.from(table.tBodies);

  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };

  // Sorting: a click on a heading sorts, a second click turns the order around.
  const value = (body, column) => {
    const cell = body.rows[0].cells[column];
    return cell.classList.contains("number") ? Number(cell.dataset.value ?? NaN) : cell.textContent;
  };
  const compare = (a, b) => {
    if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
    return Number.isNaN(a) - Number.isNaN(b) || a - b;
  };
  const headings = Array.from(table.tHead.rows[0].cells);
  headings.forEach((heading, column) => {
    const button = make("button", { type: "button" }, heading.textContent);
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = entries.map((body) => [value(body, column), body]);
      const known = ([a]) => typeof a === "string" || !Number.isNaN(a);
      keyed.sort((a, b) => (down && known(a) && known(b) ? compare(b[0], a[0]) : compare(a[0], b[0])));
      table.append(...keyed.map(([, body]) => body));
    });
  });

  // Filters: a text, and a choice for whatever has more than one value.
  const text = make("input", { type: "search", placeholder: "filter by name", ariaLabel: "filter by name" });
  const chooser = (key) => {
    const values = [...new Set(entries.map((body) => body.dataset[key]))].filter((name) => name !== undefined);
    if (values.length < 2) return null;
    const plural = { family: "families", verdict: "verdicts", run: "runs" }[key];
    const options = values.map((name) => make("option", { value: name }, name));
    const select = make("select", { ariaLabel: key }, make("option", { value: "" }, `all ${plural}`), ...options);
    return { key, select };
  };
  const choosers = ["family", "verdict", "run"].map(chooser).filter((found) => found !== null);
  const shown = make("output");
  const apply = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const body of entries) {
      const name = `${body.rows[0].cells[0].textContent} ${body.querySelector("summary").textContent}`.toLowerCase();
      const fits = choosers.every(({ key, select }) => !select.value || select.value === body.dataset[key]);
      body.hidden = !(fits && words.every((word) => name.includes(word)));
      count += body.hidden ? 0 : 1;
    }
    shown.value = count === entries.length ? `${count} entries` : `${count} of ${entries.length} entries`;
  };
  text.addEventListener("input", apply);
  choosers.forEach(({ select }) => select.addEventListener("change", apply));
  const controls = make("div", { className: "controls" }, text, ...choosers.map(({ select }) => select), shown);
  table.parentElement.before(controls);
  apply();

  // A link to an entry unfolds it, whatever the filters say.
  const unfold = () => {
    const body = document.getElementById(location.hash.slice(1));
    if (!entries.includes(body)) return;
    body.hidden = false;
    body.querySelector("details").open = true;
    body.scrollIntoView();
  };
  window.addEventListener("hashchange", unfold);
  unfold();

  for (const box of table.querySelectorAll(".command")) {
    const button = make("button", { type: "button" }, "copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(box.querySelector("code").textContent);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(box.querySelector("code"));
        button.textContent = "Ctrl-C";
      }
      setTimeout(() => (button.textContent = "copy"), 1500);
    });
    box.append(button);
  }
})();
