# gonogo with all that a rehearsal needs, on a CPU: docker build -t gonogo . && docker run --rm -v "$PWD:/work" gonogo check .
FROM python:3.11-slim-bookworm

# git: versions pinned to a commit; a compiler is not needed, as no kernel is built.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/gonogo
COPY constraints.txt pyproject.toml hatch_build.py README.md LICENSE ./
COPY src ./src
COPY tests/hazards ./tests/hazards
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
    --constraint constraints.txt ".[rehearse,mcp]"

RUN useradd --create-home --uid 1000 gonogo
USER gonogo
WORKDIR /work
ENTRYPOINT ["gonogo"]
CMD ["--help"]
