# Baton's commands. `make help` lists them; each says what it needs and installs it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
ENV := . build/env.sh;
DATA ?= $(HOME)/.local/share/baton
PORT ?= 27017

.PHONY: image test-image soak faults linearizability fuzz-commands help tools libraries build release install up test check-format check-house spec \
  spec-long lint unit cluster test-clients fuzz crash differential deny advisories sim

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

tools: ## install what the build needs (Debian packages), if it is missing
	@build/tools.sh

libraries: tools ## compile RocksDB and jemalloc once, into the cache
	@build/jemalloc.sh & build/rocksdb.sh; wait $$!

build: libraries ## build the binary that `make up` runs
	@$(ENV) cargo build --locked --profile quick -p baton

release: libraries ## build the optimised binary
	@$(ENV) cargo build --locked --release -p baton

PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
PROFILE ?= quick
install: $(if $(filter release,$(PROFILE)),release,build) ## put `baton` into PREFIX/bin: ~/.local/bin, for root /usr/local/bin
	@$(ENV) install -D "$$CARGO_TARGET_DIR/$(PROFILE)/baton" "$(DESTDIR)$(PREFIX)/bin/baton"; \
	  echo "baton is in $(DESTDIR)$(PREFIX)/bin"; \
	  case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; *) echo "which is not on the PATH: export PATH=\"$(PREFIX)/bin:\$$PATH\"" ;; esac

# What builds and runs images: podman or docker, with their own flags if they need any. BASE_IMAGE is Debian 12 or a close relative.
CONTAINERS ?= $(firstword $(notdir $(shell command -v podman docker)))
IMAGE ?= baton
BASE_IMAGE ?=
image: release ## build the container image IMAGE (baton), with podman or docker
	@$(ENV) context="$$(mktemp -d)"; trap 'rm -rf "$$context"' EXIT; cp "$$CARGO_TARGET_DIR/release/baton" "$$context/"; \
	  $(or $(CONTAINERS),$(error neither podman nor docker is on the PATH: install one, or name it in CONTAINERS)) build $(if $(BASE_IMAGE),--build-arg BASE=$(BASE_IMAGE)) -f packaging/Containerfile -t $(IMAGE) "$$context"

MEMBERS ?= 3
up: build ## start a replica set rs0 of three members (MEMBERS) from 127.0.0.1:27017 on, and print its connection string
	@$(ENV) exec "$$CARGO_TARGET_DIR/quick/baton" up --members $(MEMBERS) --port $(PORT) --data "$(DATA)"

test: libraries check-format check-house deny spec lint unit cluster fuzz ## everything that must hold (CI runs exactly this)
	@echo "make test: all passed"

check-format:
	@cargo fmt --all --check

check-house: ## compare every Cargo.toml with the law of imports in ARCHITECTURE.md
	@build/check-house.py

spec: ## have TLC explore the specification in TLA+ and its unsafe variants (Java and Maven, installed if missing)
	@spec/run.sh

spec-long: ## the same with larger bounds: some quarter of an hour
	@spec/run.sh --long

lint:
	@$(ENV) cargo clippy --locked --workspace --all-targets -- -D warnings

# `cluster` takes the binary that this makes: built by itself it would be compiled again, with other features of its crates.
unit: ## unit, property and golden tests of all crates
	@$(ENV) cargo test --locked --workspace

cluster: libraries ## real processes, real SIGKILL, real drivers
	@$(ENV) cargo test --locked --workspace --no-run --quiet && BATON="$$CARGO_TARGET_DIR/debug/baton" tests/run.sh

test-clients: build ## every official client, the tools that are on the PATH, and YCSB
	@$(ENV) BATON="$$CARGO_TARGET_DIR/quick/baton" tests/compat/run.sh

test-image: image ## the image: a member that is killed, started again and stopped, with the right to set niceness and without
	@$(ENV) CONTAINERS="$(CONTAINERS)" IMAGE="$(IMAGE)" tests/image/run.sh

# The points whose names begin so, e.g. CRASH_AT=drop,freeing,index-build; of all by default.
CRASH_AT ?=
crash: ## a hundred kills at random moments and at every named crash point, or at those that CRASH_AT names
	@$(ENV) tests/crash/run.sh $(if $(CRASH_AT),--at $(CRASH_AT))

faults: ## faults of replica sets that take long or need crash points: rollbacks, votes, losses of power
	@$(ENV) tests/faults/run.sh

soak: libraries ## worlds, histories and real faults in rounds, until stopped or for SOAK_MINUTES; stops at the first failure
	@$(ENV) cargo build --locked --quiet --profile quick -p baton-sim && cargo build --locked --quiet -p baton --features crash-points && \
	  cp --remove-destination "$$CARGO_TARGET_DIR/debug/baton" "$$CARGO_TARGET_DIR/debug/baton-crash-points" && cargo build --locked --quiet -p baton && \
	  BATON="$$CARGO_TARGET_DIR/debug/baton" BATON_WITH_CRASH_POINTS="$$CARGO_TARGET_DIR/debug/baton-crash-points" \
	  BATON_SIM="$$CARGO_TARGET_DIR/quick/baton-sim" tests/soak.sh

linearizability: libraries ## HISTORIES (200) from real members under random faults, judged by Porcupine, and a fault built in that it must find
	@$(ENV) cargo build --locked -p baton && BATON="$$CARGO_TARGET_DIR/debug/baton" \
	  tests/linearizability/run.sh -histories $(or $(HISTORIES),200) && tests/linearizability/run.sh --mutants

MINUTES ?= 10
fuzz-commands: libraries ## valid commands from a grammar, many clients, three members with kills in between, for MINUTES (10)
	@$(ENV) cargo build --locked -p baton && BATON="$$CARGO_TARGET_DIR/debug/baton" tests/fuzz-commands/run.sh --minutes $(MINUTES)

differential: libraries ## random queries, pipelines and updates, compared with npm's mingo, and with and without indexes
	@$(ENV) cargo build --locked -p baton && BATON="$$CARGO_TARGET_DIR/debug/baton" tests/differential/run.sh

sim: ## simulated replica sets, SIM_SECONDS long or the world SEED alone, every step checked
	@$(ENV) cargo run --locked --quiet --profile quick -p baton-sim -- $(if $(SEED),--seed $(SEED),--seconds $(or $(SIM_SECONDS),60))

fuzz: ## a short run of every fuzz target (FUZZ_SECONDS each)
	@$(ENV) build/fuzz.sh $${FUZZ_SECONDS:-3}

# Settings of the benchmarks, e.g. make bench-one RECORDS=100000 SECONDS_EACH=3 CLIENTS="8 64" WORKLOADS="a c"
RECORDS ?= 1000000
JAVA_RECORDS ?= 100000
SECONDS_EACH ?= 10
CLIENTS ?= 8 64
WORKLOADS ?= a b c f d e
ROUNDS ?= 1
WITHOUT ?=
BENCH_DIR ?= $(HOME)/.cache/baton/bench
# More flags, as `baton bench one --help` lists them.
BENCH_FLAGS ?=
BENCH = $(ENV) mkdir -p "$(BENCH_DIR)"; "$$CARGO_TARGET_DIR/release/baton" bench
BENCH_PLACE = --dir "$(BENCH_DIR)" --output "$(BENCH_DIR)/$(1).json"
comma := ,
empty :=
commas = $(subst $(empty) $(empty),$(comma),$(strip $(1)))

.PHONY: bench-peers bench-one bench-scale bench-idle bench-connections bench-memory bench-spill bench-index-build bench-recovery bench-initial-sync bench-set bench-door bench-failover \
  bench-disturbance

bench-peers: tools
	@$(ENV) crates/proof/bench/peers/install.sh

bench-one: release bench-peers ## Baton beside mongo-java-server, Redis, a ping-pong, RocksDB and a bare file
	@$(BENCH) one --records $(RECORDS) --java-records $(JAVA_RECORDS) --seconds $(SECONDS_EACH) --rounds $(ROUNDS) \
	  --clients $(call commas,$(CLIENTS)) --workloads $(call commas,$(WORKLOADS)) \
	  $(if $(WITHOUT),--without $(call commas,$(WITHOUT))) --java "$$BATON_CACHE/peers/java" \
	  $(call BENCH_PLACE,one) $(BENCH_FLAGS)

bench-scale: release ## throughput of one working set in tables of 10^5 to 10^7 records (some 30 GB of disk)
	@$(BENCH) scale --clients $(firstword $(CLIENTS)) --seconds $(SECONDS_EACH) $(call BENCH_PLACE,scale) $(BENCH_FLAGS)

bench-idle: release ## memory and CPU of a member that nobody asks anything
	@$(BENCH) idle $(call BENCH_PLACE,idle) $(BENCH_FLAGS)

bench-connections: release ## ten thousand idle connections: what each holds, and what those lose that work beside them
	@$(BENCH) connections --seconds $(SECONDS_EACH) $(call BENCH_PLACE,connections) $(BENCH_FLAGS)

bench-memory: release ## peak memory of a member with a cache of 256 MB whose clients ask for too much
	@$(BENCH) memory --records $(RECORDS) $(call BENCH_PLACE,memory) $(BENCH_FLAGS)

bench-spill: release ## a sort of the whole table with 100 MB of memory beside one that fits
	@$(BENCH) spill --records $(RECORDS) $(call BENCH_PLACE,spill) $(BENCH_FLAGS)

bench-index-build: release ## an index over the whole table beside a restore of it, and what a small writer notices
	@$(BENCH) index-build --records $(RECORDS) $(call BENCH_PLACE,index-build) $(BENCH_FLAGS)

bench-recovery: release ## time from kill -9 under load to the next acknowledged insert
	@$(BENCH) recovery --records $(RECORDS) $(call BENCH_PLACE,recovery) $(BENCH_FLAGS)

bench-initial-sync: release ## time until a new member has its data, by cloning and by file, and what the source's clients lose
	@$(BENCH) initial-sync --records $(if $(filter file,$(origin RECORDS)),2000000,$(RECORDS)) \
	  $(call BENCH_PLACE,initial-sync) $(BENCH_FLAGS)

bench-set: release ## majority writes of three members beside three of etcd
	@$(ENV) crates/proof/bench/peers/etcd/build.sh
	@$(BENCH) set --seconds $(SECONDS_EACH) --etcd "$$BATON_CACHE/peers/etcd-peer" $(call BENCH_PLACE,set) $(BENCH_FLAGS)

bench-door: release ## what priorities cost where nobody says a class: mode full beside off, in turns
	@$(BENCH) door $(call BENCH_PLACE,door) $(BENCH_FLAGS)

bench-failover: release ## how long no majority writes are taken when the primary is killed, hands over or falls silent
	@$(BENCH) failover $(call BENCH_PLACE,failover) $(BENCH_FLAGS)

# Of the events all if none is named, e.g. EVENTS="drop compact"; BUSY=16 puts so many clients that are never idle in place of the
# steady two; ROUNDS=3 gives medians; BEFORE=PATH measures the members of that binary first. BENCH_PICTURES=docs draws the
# documentation's picture.
EVENTS ?=
BUSY ?= 0
BEFORE ?=
bench-disturbance: release ## what steady clients notice of drops, index builds, large deletes, compactions, backups, copies
	@$(BENCH) disturbance --records $(RECORDS) --busy $(BUSY) --rounds $(ROUNDS) $(if $(EVENTS),--events $(call commas,$(EVENTS))) \
	  $(if $(BEFORE),--before "$(BEFORE)") $(call BENCH_PLACE,disturbance) $(BENCH_FLAGS)
	@$(ENV) lab/run.sh draw disturbance "$(BENCH_DIR)" "$(or $(BENCH_PICTURES),$(BENCH_DIR))"

# LAB_PICTURES=docs/lab draws the pictures that the documentation shows.
LAB = $(ENV) lab/run.sh $(1) $(if $(LAB_PICTURES),--pictures "$(LAB_PICTURES)")

# A part alone (PART=backup) or all of them, each variant ROUNDS times; five of each take two hours.
PART ?=

.PHONY: lab lab-leadership lab-priority lab-chaining lab-uplink lab-failover lab-lag lab-check

lab: release ## all experiments with members on machines of their own: network namespaces and cgroups (needs root)
	@$(call LAB,all)

lab-chaining: release ## two sites: latency, throughput and bytes between them, chaining on and off (needs root)
	@$(call LAB,chaining)

lab-uplink: release ## the primary's link held to 200 Mbit/s, chaining on and off (needs root)
	@$(call LAB,uplink)

lab-failover: release ## throughput while the primary is killed and returns (needs root)
	@$(call LAB,failover)

lab-lag: release ## commit lag and CPU of the secondaries at the primary's full update rate (needs root)
	@$(call LAB,lag)

lab-leadership: release ## compactions and backups with leadership moving and not: the paper's evaluation (needs root; takes long)
	@$(call LAB,leadership) $(if $(PART),--part $(PART)) --rounds $(if $(filter file,$(origin ROUNDS)),5,$(ROUNDS))

lab-priority: release ## requests of different classes, by each mode: the paper's evaluation (needs root; takes long)
	@$(call LAB,priority) $(if $(PART),--part $(PART)) --rounds $(if $(filter file,$(origin ROUNDS)),20,$(ROUNDS))

lab-check: ## the lab's pure parts (no root)
	@lab/run.sh check

deny: ## licences, sources and versions of all that Baton is built from
	@build/deny.sh

advisories: ## the same, and known faults of the dependencies, by a database that it fetches
	@build/deny.sh advisories
