"""Forks: what they send arrives, what they raise is raised, and none of them outlives its use."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from forks import PATIENCE, alive, vanished, watched

from verifier import processes
from verifier.processes import PIPE_BYTES, Fork, Forked, Forks, Send, cores, forkable

pytestmark = pytest.mark.skipif(not forkable(), reason="forks work on Linux only")


def asleep(send: Send) -> None:
    time.sleep(10 * PATIENCE)


def killed(send: Send) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def gather(fork: Fork) -> list[object]:
    """All that comes until the fork ends."""
    found: list[object] = []
    while not fork.ended:
        processes.wait_for([fork], 1.0)
        found += fork.messages()
    return found


def wait_for_death(fork: Fork) -> None:
    """Until the process is dead; nobody has taken note of it then."""
    os.waitid(os.P_PID, fork._pid, os.WEXITED | os.WNOWAIT)


# ---------------------------------------------------------------- messages


def test_what_is_sent_and_returned_arrives_in_order() -> None:
    def work(send: Send) -> str:
        for i in range(200):
            send(i)
        return "end"

    with watched() as forks:
        assert gather(Fork.start(work)) == [*range(200), "end"]
    assert len(forks.children) == 1


@pytest.mark.parametrize("sent", [PIPE_BYTES - 100, PIPE_BYTES, 5 * PIPE_BYTES])
def test_messages_larger_than_the_pipe(sent: int) -> None:
    """Bytes and tensors; the fork waits until somebody reads."""
    made = torch.arange(sent // 8)

    def work(send: Send) -> torch.Tensor:
        send(os.urandom(1) * sent)
        return made

    with watched():
        first, second = gather(Fork.start(work))
    assert isinstance(first, bytes)
    assert (len(first), len(set(first))) == (sent, 1)
    assert torch.equal(second, made)


def test_a_fork_knows_what_its_parent_knew_and_changes_nothing_there() -> None:
    known = {"a": 1}

    def work(send: Send) -> dict[str, int]:
        known["a"] += 1
        return known

    with watched(), Forked(work) as answer:
        assert answer.wait() == {"a": 2}
    assert known == {"a": 1}


def test_nothing_is_there_before_it_is_sent() -> None:
    go, ready = os.pipe(), os.pipe()

    def work(send: Send) -> str:
        send("early")
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        return "late"

    with watched():
        fork = Fork.start(work)
        os.read(ready[0], 1)
        assert fork.messages() == ["early"]
        assert fork.messages() == []
        assert not fork.ended
        os.write(go[1], b"x")
        assert gather(fork) == ["late"]
    for end in (*go, *ready):
        os.close(end)


def test_an_answer_is_none_until_it_is_there() -> None:
    with watched():
        with Forked(asleep) as answer:
            assert answer.now() is None
            answer.nap()
            assert answer.now() is None
        with Forked(lambda send: 7) as other:
            assert other.wait() == 7
            assert (other.now(), other.wait()) == (7, 7)  # as often as one likes


# ---------------------------------------------------------------- errors


class Odd(ValueError):
    """With something to carry."""


@pytest.mark.parametrize("error", [Odd("here", 3), MemoryError("full"), EOFError("a file"), FileNotFoundError(2, "no")])
def test_what_the_work_raises_is_raised(error: Exception) -> None:
    """Also where the pipe itself might have raised the like."""

    def work(send: Send) -> None:
        send("before")
        raise error

    with watched():
        answer = Forked(work)
        with pytest.raises(type(error)) as raised:
            answer.wait()
        assert raised.value.args == error.args
        assert answer.now() is None or answer.now() == "before"


def test_a_fork_that_was_killed_is_a_lack_of_memory() -> None:
    with watched(), Forked(killed) as answer:
        with pytest.raises(MemoryError, match="killed"):
            answer.wait()
        assert answer.now() is None


def test_a_fork_that_was_killed_in_the_middle_of_a_message() -> None:
    def work(send: Send) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.2)  # its signal kills; nobody reads until then
        send(bytes(4 * PIPE_BYTES))

    with watched():
        fork = Fork.start(work)
        wait_for_death(fork)
        with pytest.raises(MemoryError):
            fork.messages()


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()])
def test_a_fork_that_leaves_without_a_word(raised: BaseException) -> None:
    def work(send: Send) -> None:
        raise raised

    with watched(), Forked(work) as answer, pytest.raises(MemoryError):
        answer.wait()


def test_a_result_that_cannot_be_sent_is_no_answer() -> None:
    with watched(), Forked(lambda send: lambda: 0) as answer, pytest.raises(MemoryError):
        answer.wait()


# ---------------------------------------------------------------- the end


def test_stopping_ends_a_fork_and_leaves_no_zombie() -> None:
    with watched() as forks:
        fork = Fork.start(asleep)
        assert alive(forks.children[0])
        fork.stop()
        assert not alive(forks.children[0])
        fork.stop()  # once more
        assert fork.messages() == []


def test_stopping_a_fork_that_is_dead_already() -> None:
    with watched():
        for work in (killed, lambda send: 1):
            fork = Fork.start(work)
            wait_for_death(fork)
            fork.stop()
            assert fork.messages() == []


def test_after_the_end_everything_is_harmless() -> None:
    with watched():
        answer = Forked(asleep)
        answer.end()
        answer.end()
        assert answer.now() is None
        done = Forked(lambda send: 5)
        assert done.wait() == 5
        done.end()
        assert done.now() == 5


def test_leaving_the_block_by_an_error_ends_the_fork() -> None:
    with watched() as forks:
        with pytest.raises(Odd), Forked(asleep):
            raise Odd
        assert not alive(forks.children[0])


def test_files_of_forks_are_closed() -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.collect()  # what other tests have left behind must not go meanwhile
    with watched():
        before = opened()
        for work in (asleep, killed, lambda send: 1):
            fork = Fork.start(work)
            if work is not asleep:
                wait_for_death(fork)
            fork.stop()
        assert opened() == before


# ---------------------------------------------------------------- whole processes


def script(body: str) -> list[str]:
    head = "import os, signal, sys, time\nfrom verifier.processes import *\n"
    return [sys.executable, "-c", head + textwrap.dedent(body)]


def start(body: str, root: Path) -> subprocess.Popen[str]:
    """A process in a group of its own, which speaks to us."""
    return subprocess.Popen(script(body), stdout=subprocess.PIPE, text=True, cwd=root, start_new_session=True)


def test_a_fork_dies_with_its_parent(root: Path) -> None:
    """And so do the forks of forks."""
    body = """
    def sleeper(send):
        inner = Fork.start(lambda send: time.sleep(600))
        send(inner._pid)
        time.sleep(600)

    fork = Fork.start(sleeper)
    while not (found := fork.messages()):
        wait_for([fork], 1.0)
    print(fork._pid, *found, flush=True)
    time.sleep(600)
    """
    with start(body, root) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        process.kill()
        process.wait()
        assert all(vanished(pid) for pid in pids)


def test_an_interrupt_from_the_terminal_is_for_the_parent(root: Path) -> None:
    """The group gets it; the parent handles it, and its fork works on until the parent ends it."""
    body = """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started us may have ignored it
    fork = Fork.start(lambda send: (send("ready"), time.sleep(600)))
    while not fork.messages():
        wait_for([fork], 1.0)
    try:
        print(fork._pid, flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        time.sleep(0.2)
        print(fork.messages(), fork.ended, flush=True)
        sys.stdin.readline()
    fork.stop()
    """
    with subprocess.Popen(
        script(body), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "[] False\n"
        assert alive(pid)
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        assert not alive(pid)


def test_forks_work_after_their_parent_used_many_threads(root: Path) -> None:
    """Threads do not survive a fork: whoever waited for one would wait for ever."""
    body = """
    import torch
    torch.set_num_threads(4)

    def work(send):
        x = torch.linspace(-1, 1, 2**18).view(512, 512)
        return float((x @ x).relu().sum() + x.exp().sum()), torch.get_num_threads()

    here = work(None)
    there = [Forked(work) for _ in range(2)]
    found = [answer.wait() for answer in there]
    assert here[1] == 4 and all(threads == 1 for _, threads in found), (here, found)
    assert all(abs(value - here[0]) < 1e-3 * abs(here[0]) for value, _ in found)
    assert work(None)[1] == 4
    print("done")
    """
    done = subprocess.run(script(body), capture_output=True, text=True, cwd=root, timeout=2 * PATIENCE)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_cores_are_those_that_this_process_may_use() -> None:
    def one(send: Send) -> int:
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        return cores()

    assert 1 <= cores() <= len(os.sched_getaffinity(0))
    with Forked(one) as answer:
        assert answer.wait() == 1


def test_elsewhere_than_on_linux_nothing_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with watched() as forks:
        assert Forks(3).map(lambda i: i * i, range(5)) == [0, 1, 4, 9, 16]
    assert not forks.pairs


# ---------------------------------------------------------------- sharing out


def test_shared_work_gives_what_it_gives_alone() -> None:
    """For any number of processes, also with fewer items than those; every process gets as many items."""
    for count in range(1, 5):
        for items in range(8):
            with watched() as forks:
                found = Forks(count).map(lambda i: (10 * i, os.getpid()), range(items))
            assert [value for value, _ in (one for one in found if one)] == [10 * i for i in range(items)]
            assert len(forks.children) == max(0, min(count, items) - 1)
            who = [pid for _, pid in (one for one in found if one)]
            assert len(set(who)) == min(count, items)
            shares = [who.count(pid) for pid in set(who)]
            assert not shares or max(shares) - min(shares) <= 1


def test_results_that_are_none_or_large_arrive_too() -> None:
    with watched():
        assert Forks(2).map(lambda i: None, range(5)) == [None] * 5
        found = Forks(3).map(lambda i: torch.full((PIPE_BYTES // 4,), i), range(3))
    assert [int(one.sum()) // len(one) for one in found if one is not None] == [0, 1, 2]


def after(calls: int) -> Callable[[], bool]:
    """Says stop from that call on."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_what_is_not_reached_before_the_stop_is_none(count: int, calls: int) -> None:
    with watched():
        found = Forks(count).map(lambda i: i, range(7), after(calls))
    own = range(0, 7, count)
    assert [found[i] for i in own[:calls]] == list(own[:calls])
    assert all(found[i] is None for i in own[calls:])
    assert all(value in (None, i) for i, value in enumerate(found))
    if calls < len(own):
        assert sum(value is not None for value in found) == calls


def test_a_stop_does_not_wait_for_forks() -> None:
    home = os.getpid()

    def work(i: int) -> int:
        if os.getpid() != home:
            time.sleep(10 * PATIENCE)
        return i

    with watched():
        assert Forks(2).map(work, range(6), after(10)) == [0, None, 2, None, 4, None]


@pytest.mark.parametrize("guilty", range(3))
def test_an_error_in_any_share_is_raised_and_ends_the_others(guilty: int) -> None:
    """Shares after the guilty one would take for ever."""

    def work(i: int) -> int:
        if i == guilty:
            raise Odd(i)
        if i > guilty:
            time.sleep(10 * PATIENCE)
        return i

    with watched() as forks:
        with pytest.raises(Odd) as raised:
            Forks(3).map(work, range(3))
        assert not any(alive(child) for child in forks.children)
    assert raised.value.args == (guilty,)
    assert len(forks.children) == 2


def test_a_share_that_is_killed_is_a_lack_of_memory() -> None:
    def work(i: int) -> int:
        if i == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    with watched(), pytest.raises(MemoryError):
        Forks(2).map(work, range(4))
