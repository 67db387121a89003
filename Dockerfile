# Hajob's image, for docker, podman and buildah: the same files as `make image-archive` packs without any of them
# (release/layout.py says what they are). Operator and sidecar are one image; no shell, no compiler, not root.
FROM debian:12-slim AS files
ARG TARGETARCH=amd64
RUN apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv ca-certificates
COPY . /src
WORKDIR /src
RUN HAJOB_CACHE=/tmp/cache python3 -m e2e.bootstrap --python-only -m release.image --platform linux/${TARGETARCH} --root /image

FROM scratch
COPY --from=files /image /
ENV PATH=/usr/local/bin:/usr/bin LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
LABEL org.opencontainers.image.title="hajob" \
      org.opencontainers.image.description="Operator and sidecar of Hajob: training on Ascend NPUs that does not stop" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.2.0"
WORKDIR /
USER 65532:65532
ENTRYPOINT ["python3", "-m", "hajob.app.operator"]
