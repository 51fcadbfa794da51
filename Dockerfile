# The gateway as an image; docker-compose.yml builds and runs it, docs/deploy.md says how.
# What compiles stays in the first stage. The tree is at the same path in both: a .venv cannot be moved.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /app

# CPU builds of torch: 0.2 GB. Set to nothing, PyPI's build comes with its CUDA libraries: 3 GB.
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu

# Packages, then models, then the rest: a change repeats only what comes after it. The README is only
# metadata here, and the packages' places are all that an editable install records of them.
COPY Makefile pyproject.toml ./
COPY deploy/requirements.lock deploy/
COPY router/__init__.py router/
COPY serving/__init__.py serving/
RUN --mount=type=cache,target=/root/.cache/pip touch README.md && make .venv/stamps/minilm
COPY models models
RUN .venv/bin/python models/build.py
COPY . .
# safetensors writes what only its owner can read.
RUN make setup && .venv/bin/python -m compileall -q models router serving && chmod -R a+rX models

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --create-home penstock
COPY --from=build /app /app
WORKDIR /app
# Profiles are measured where the gateway runs, and placements applied to it; a new volume that is mounted here
# takes over the owner.
RUN mkdir -p profiles/local .penstock && chown penstock profiles/local .penstock
ENV PATH=/app/.venv/bin:$PATH
USER penstock
EXPOSE 8000 8001 8002
ENTRYPOINT ["penstock"]
CMD ["serve"]
