# One image for every market process: api, worker, beat, migrations, contract deployment.
FROM python:3.11-slim-bookworm

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1
WORKDIR /app

COPY requirements.lock pyproject.toml README.md ./
RUN pip install --no-deps -r requirements.lock
COPY . .
RUN pip install --no-deps --no-build-isolation -e . \
    && useradd --system --uid 10001 --create-home zoo \
    && mkdir -p /var/lib/zoo && chown zoo /var/lib/zoo
USER zoo
EXPOSE 8000
CMD ["python", "-m", "market.server", "--host", "0.0.0.0"]
