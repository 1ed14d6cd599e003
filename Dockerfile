# Strata in a container, built from this package.  For the CPU, and with CUDA (a version that PyTorch builds for):
#
#     docker build -t strata .
#     docker build -t strata:cuda --build-arg TORCH=cu126 .
#
# Files come in, and results go out, by a folder that is mounted (docs/machines.md):
#
#     docker run --rm -v "$PWD":/data strata net.onnx prop.vnnlib
#     docker run --rm -v "$PWD":/data --gpus all strata:cuda net.onnx prop.vnnlib --device cuda

ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS built
ARG TORCH=cpu
ARG TORCH_VERSION=2.13.0
WORKDIR /source
# torch comes first and alone: a change of the package does not load it again.
RUN python -m venv /opt/strata \
    && /opt/strata/bin/pip install --no-cache-dir "torch==${TORCH_VERSION}" torchvision \
        --index-url "https://download.pytorch.org/whl/${TORCH}"
COPY pyproject.toml README.md LICENSE strata_verifier.py ./
COPY configs configs
COPY verifier verifier
RUN /opt/strata/bin/pip install --no-cache-dir .

FROM python:${PYTHON}-slim
COPY --from=built /opt/strata /opt/strata
ENV PATH=/opt/strata/bin:${PATH}
WORKDIR /data
ENTRYPOINT ["verify"]
CMD ["--help"]
