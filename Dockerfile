# One image for every process: API, workers, beat, migrations, deployment of the contracts, and nodes.
FROM python:3.11-slim-bookworm

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1
WORKDIR /app

# An index with another build of torch than the default one. On x86-64 the default is the CUDA build, which also runs
# without a GPU. PyTorch's index of CPU builds makes the image several GB smaller.
ARG TORCH_INDEX=""
COPY requirements.lock ./
# With dependencies: the CUDA build of torch needs libraries that the lock does not have. The lock pins all else.
RUN pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r requirements.lock
COPY . .
RUN pip install --no-deps --no-build-isolation -e .
RUN useradd --system --uid 10001 --create-home zoo && mkdir -p /var/lib/zoo && chown zoo /var/lib/zoo
USER zoo
EXPOSE 8000
CMD ["python", "-m", "market.server", "--host", "0.0.0.0"]
