# One image for all services; compose.yaml sets the command of each. BASE needs Python 3.11 or newer as python3.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
# pip stays in this stage: what runs does not need it.
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/csi/venv
COPY requirements.lock ./
RUN /opt/pip/bin/pip --python /opt/csi/venv/bin/python install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE huey_config.py ./
COPY csi csi
COPY tasks tasks
COPY docs docs
COPY config config
COPY ops ops
RUN /opt/pip/bin/pip --python /opt/csi/venv/bin/python install --no-cache-dir --no-deps --no-build-isolation .

FROM ${BASE}
RUN groupadd --system --gid 10001 csi \
 && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/csi --no-create-home --shell /usr/sbin/nologin csi \
 && install -d -m 0700 -o csi -g csi /var/lib/csi /var/backups/csi /etc/csi
COPY --from=build /opt/csi/venv /opt/csi/venv
ENV PATH=/opt/csi/venv/bin:$PATH PYTHONUNBUFFERED=1 CSI_CONFIG_PATH=/etc/csi/config.yaml CSI_ENV_FILE=/etc/csi/env
USER 10001:10001
WORKDIR /var/lib/csi
VOLUME ["/var/lib/csi", "/var/backups/csi"]
STOPSIGNAL SIGTERM
# Of the worker; compose.yaml has those of the other services.
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s --retries=3 CMD ["csi", "health"]
# The variables of /etc/csi/env, as systemd would read them, and then the command.
ENTRYPOINT ["csi", "exec", "--"]
CMD ["huey_consumer", "huey_config.huey", "-w", "24", "-k", "thread", "-d", "0.05", "-m", "0.5", "-s", "1", "-g", "TERM", "-t", "25"]
