# Latticework in a container; docs/installation.md has the commands. No test builds it.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

# Where PyTorch comes from: its packages for the CPU or, for CUDA, https://pypi.org/simple
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

COPY . /source
RUN pip install --no-cache-dir --extra-index-url "${TORCH_INDEX}" -c /source/constraints.txt /source

# Records go to the volume /outputs; data and compiled kernels to ~/.cache.
RUN useradd --create-home --uid 1000 runner && mkdir /outputs && chown runner /outputs
USER 1000
ENV LATTICEWORK_OUTPUTS=/outputs
VOLUME /outputs
WORKDIR /outputs

ENTRYPOINT ["latticework"]
CMD ["--help"]
