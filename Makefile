# Every target sets up what it needs first; when all is there, that takes a tenth of a second (docs/internals/set-up.md).
PYTHON ?= python3
SETUP := $(PYTHON) -m e2e.bootstrap
# What needs no cluster asks for no binaries.
TOOL := $(SETUP) --python-only
RUN := $(SETUP) -m
# Modules that write checked-in files; each knows --check.
GENERATORS := $(addprefix release.generate.,protocol crds reference remedies cli diagram operator_page pictures alerts dashboards chart)
# Options for pytest, or paths that narrow a target: TESTS="-k rank_table", TESTS=tests/unit/plan.
TESTS ?=
# Where a target's tests are, unless TESTS names paths: pytest looks at testpaths only where it is given none.
below = -o testpaths="$(1)" $(TESTS)
# How many histories `make sim` plays.
SEEDS ?= 2000
# What trains in `make e2e`: the toy, or with TRAINER=torch or mindspore the real thing (docs/internals/toy-trainer.md).
TRAINER ?= toy
# What the nodes of `make demo`, `make e2e` and `make bench` are: processes of this machine, real kubelets with
# containerd (root), or kind's (Docker; docs/internals/local-cluster.md).
PROVIDER ?= processes
ifeq ($(filter $(PROVIDER),processes kubelets kind),)
$(error PROVIDER=$(PROVIDER): there are processes, kubelets and kind)
endif
PYTEST := $(RUN) pytest -o tmp_path_retention_policy=failed
# Three at once on two cores: half of the time a test waits for processes and servers.
THREE_AT_ONCE := -n 3 --dist worksteal --durations=15
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@echo "make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: setup
setup: ## make everything the other targets need (they do it, too)
	@$(SETUP)

.PHONY: demo
demo: ## a training on a local cluster survives six faults, before your eyes; ARGS=--stay: it waits for yours; ARGS=--ui: in a browser, too
	@$(TOOL) -m e2e.demo --provider $(PROVIDER) $(ARGS)

.PHONY: test
test: lint ## decide whether a change is good: lint, and all tests but the longest
	@$(PYTEST) $(THREE_AT_ONCE) -m "not slow" $(TESTS)

.PHONY: slow
slow: ## the longer half of the tests on whole clusters and those with real PyTorch, which make test leaves out
	@$(PYTEST) $(THREE_AT_ONCE) -m slow $(call below,e2e/scenarios tests/integration $(addprefix tests/unit/,agent controller_host sim trainer))

.PHONY: lint
lint: ## format, lint, strict types, import contract, generated files
	@$(TOOL) -m ruff format --check --quiet . || { echo "run 'make format'"; exit 1; }
	@$(TOOL) -m ruff check --quiet .
	@$(TOOL) -m mypy
	@$(TOOL) -c "from importlinter.cli import lint_imports_command as check; check()"
	@for module in $(GENERATORS); do $(TOOL) -m $$module --check || exit 1; done
	@$(TOOL) -m tests.house --check
	@$(TOOL) -m pytest -q --no-header --no-summary tests/unit/sources/test_no_catch_all.py >/dev/null || { echo "a parser catches everything: tests/unit/sources/test_no_catch_all.py names it"; exit 1; }

.PHONY: house
house: ## what of the code's structure can be counted, beside what was reached and the goals
	@$(TOOL) -m tests.house $(ARGS)

.PHONY: format
format: ## format the code, repair what the linter can
	@$(TOOL) -m ruff check --fix --quiet . || true
	@$(TOOL) -m ruff format .

.PHONY: generate
generate: ## write the generated files anew
	@for module in $(GENERATORS) release.generate.catalogue; do $(TOOL) -m $$module || exit 1; done

.PHONY: unit
unit: ## tests without a cluster, in seconds
	@$(TOOL) -m pytest $(call below,tests/unit)

.PHONY: pythons
pythons: ## unit tests by every supported Python of this machine, those of the launcher by 3.7 and newer, as a table
	@$(TOOL) -m tests.unit.pythons $(TESTS)

.PHONY: integration
integration: ## tests on a real API server
	@$(PYTEST) $(call below,tests/integration)

.PHONY: e2e
e2e: ## whole trainings, faults included, with the MindIO simulator or the package in HAJOB_MINDIO; TRAINER=torch or mindspore, PROVIDER=kubelets or kind
ifeq ($(PROVIDER),kubelets)
	@$(RUN) e2e.kubelets $(TESTS)
else ifeq ($(PROVIDER),kind)
	@$(TOOL) -m e2e.kubelets.kind $(TESTS)
else ifeq ($(TRAINER),torch)
	@$(TOOL) -m e2e.torch_trainer
	@HAJOB_TRAINER=torch $(PYTEST) $(call below,e2e/scenarios/test_real_torch.py)
else ifeq ($(TRAINER),mindspore)
	@$(TOOL) -m e2e.mindspore_trainer
	@HAJOB_TRAINER=mindspore $(PYTEST) $(call below,e2e/scenarios/test_real_mindspore.py)
else
	@HAJOB_EVERY_POINT=1 $(PYTEST) $(call below,e2e/scenarios tests/integration/sidecar/test_lost_while_smaller.py tests/integration/sidecar/test_lost_between_two_ranks.py)
endif

.PHONY: scenarios
scenarios: e2e ## the same as e2e

.PHONY: chart
chart: ## build Helm, test the chart: what it renders, and on a real API server
	@$(RUN) e2e.bootstrap.provide helm
	@HAJOB_CHART_ON_SERVER=1 $(PYTEST) $(call below,tests/integration/chart)

.PHONY: metrics
metrics: ## build Prometheus, test metrics, alerts and boards: on made-up series, and scraping a local cluster
	@$(RUN) e2e.bootstrap.provide prometheus promtool
	@$(PYTEST) $(call below,tests/integration/metrics)

.PHONY: matrix
matrix: ## API, chart, demo on other Kubernetes versions, 1.29 first, built from their modules (ten minutes each); ARGS="1.29.6"
	@$(RUN) e2e.bootstrap.matrix $(ARGS)

.PHONY: image
image: ## build the image with docker, podman or buildah, whichever works here
	@builder=; for each in docker podman buildah; do ! $$each info >/dev/null 2>&1 || { builder=$$each; break; }; done; \
	[ "$$builder" ] || { echo "none of docker, podman, buildah works here: make image-archive needs none"; exit 1; }; \
	$$builder build --tag hajob/operator:$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) .

.PHONY: image-archive
image-archive: ## build the image as OCI archives for amd64 and arm64 in dist/, without docker and the same bytes every time
	@$(TOOL) -m release.image $(ARGS)

.PHONY: image-lock
image-lock: ## take the versions of Debian's packages that the mirrors have now
	@$(TOOL) -m release.debian

.PHONY: plugin
plugin: ## kubectl hajob as archives with a Python of their own, and krew's manifest of them
	@$(TOOL) -m release.plugin $(ARGS)

.PHONY: bundle
bundle: ## one archive to install from without a network: images, chart, CRDs, bill of materials, checksums
	@$(TOOL) -m release.bundle

.PHONY: docs
docs: ## the pages of docs as a site, in English and Chinese, in dist/site; ARGS=--serve: on this machine, following edits
	@$(TOOL) -m release.site $(ARGS)

.PHONY: fuzz
fuzz: ## give every parser of a fault source 100,000 damaged objects, guided by coverage (some minutes)
	@$(TOOL) -m e2e.fuzz --inputs 100000
	@HAJOB_FUZZ_EXAMPLES=$${HAJOB_FUZZ_EXAMPLES:-2000} $(TOOL) -m pytest tests/unit/sources/test_sources_never_raise.py -n 2 --timeout 3600 $(TESTS)
	@HAJOB_HISTORIES=100000 $(TOOL) -m pytest tests/unit/plan/test_histories.py -n 2 --timeout 3600 $(TESTS)

.PHONY: nightly
nightly: ## a million damaged objects for every parser, a parser for each processor, 20,000 examples of each property (an hour)
	@$(TOOL) -m e2e.fuzz --inputs 1000000
	@HAJOB_LOSSES=2000 $(TOOL) -m pytest tests/unit/coordinator/test_random_losses.py -n 2 --timeout 3600 $(TESTS)
	@HAJOB_EVERY_POINT=1 $(TOOL) -m pytest tests/unit/plan/test_table.py $(TESTS)
	@HAJOB_FUZZ_EXAMPLES=20000 $(TOOL) -m pytest tests/unit/sources/test_sources_never_raise.py -n 2 --timeout 3600 $(TESTS)
	@HAJOB_LONG_TESTS=1 $(PYTEST) tests/integration/release $(TESTS)
	@$(MAKE) --no-print-directory strange-machine
	@HAJOB_LONG_TESTS=1 $(PYTEST) e2e/scenarios/test_moves.py e2e/scenarios/test_demo.py -k 'without_a_cordon or six_faults'
	@HAJOB_LONG_TESTS=1 $(PYTEST) e2e/scenarios/test_limits_left_alone.py $(TESTS)

.PHONY: strange-machine
strange-machine: ## demo, unit tests and plugin where every path is long and odd, the user has no name, the locale is C
	@$(TOOL) -m e2e.strange_machine $(ARGS)

.PHONY: inject
inject: ## make a fault in the demo that stays: ARGS="chip node-3 1 --code 40F84E00" (docs/internals/process-nodes.md)
	@$(TOOL) -m e2e.inject $(ARGS)

.PHONY: conformance
conformance: ## the MindIO simulator, or the package in HAJOB_MINDIO, against recorded behaviour
	@$(TOOL) -m e2e.mindio.conformance $(TESTS)
	@test -n "$$HAJOB_MINDIO" || $(TOOL) -m e2e.mindio.conformance --off $(TESTS)

.PHONY: bench
bench: ## repeat both recoveries 20 times, times and writes as a table and as JSON; AGAINST=REV: in turns with a revision
	@$(RUN) e2e.bench --provider $(PROVIDER) $(if $(AGAINST),--against $(AGAINST)) $(ARGS)

.PHONY: proof
proof: ## every recovery for every ranks at every moment, written to docs/internals/proof.md (an hour)
	@$(RUN) e2e.proof $(TESTS)

.PHONY: sim
sim: ## play SEEDS histories of a cluster in virtual time (2,000), faults included; one of them: ARGS="--show 7"
	@$(TOOL) -m tests.sim --seeds $(SEEDS) $(ARGS)

.PHONY: mutants
mutants: ## change the decision core a little at a time, count what its tests notice (an hour and more)
	@$(TOOL) -m e2e.bench.mutants domain plan $(TESTS)

.PHONY: down
down: ## end all runs of this checkout, remove what dead ones left
	@$(PYTHON) -m e2e.cluster.down

.PHONY: clean
clean: ## give back the disk: binaries, environments, kept logs
	@$(PYTHON) -m e2e.bootstrap.clean
