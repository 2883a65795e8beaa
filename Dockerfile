# One image for worker, sidecar and receiver; compose.yaml sets the command of each.
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE huey_config.py ./
COPY csi csi
COPY tasks tasks
COPY docs docs
COPY ops/runbook.md ops/runbook.md
RUN python -m venv /opt/csi/venv \
 && /opt/csi/venv/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
 && /opt/csi/venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.12-slim-bookworm
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/csi --shell /usr/sbin/nologin csi \
 && install -d -m 0700 -o csi -g csi /var/lib/csi /var/backups/csi
COPY --from=build /opt/csi/venv /opt/csi/venv
ENV PATH=/opt/csi/venv/bin:$PATH PYTHONUNBUFFERED=1 CSI_CONFIG_PATH=/etc/csi/config.yaml
USER csi
WORKDIR /var/lib/csi
VOLUME /var/lib/csi
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 CMD ["csi", "health"]
CMD ["huey_consumer", "huey_config.huey", "-w", "24", "-k", "thread", "-d", "0.05", "-m", "0.5", "-s", "1", "-g", "TERM", "-t", "25"]
