# make demo    see a slow volume become fast, in about two minutes
# make test    everything that must hold, in about twenty minutes on two cores
# make bench   measurements beside peers, into target/bench.json
# make soak    the long sweeps: simulation seeds, mutations, crashes
# make models  the plots of docs/models.md

SHELL := bash
PACKAGES_TEST := fio libnbd-bin nbdfuse nbdkit qemu-utils e2fsprogs fuse3 mount openssl shellcheck util-linux
PACKAGES_BENCH := valgrind
SHELL_SCRIPTS := tools/install vm/prepare vm/run vm/test vm/with-forwards vm/guest/init $(wildcard vm/tests/* vm/bench/*)

.PHONY: test lint unit guest bench soak models deps-test deps-bench

test: deps-test lint unit guest

deps-test:
	tools/install $(PACKAGES_TEST)

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	shellcheck --external-sources $(SHELL_SCRIPTS)

unit:
	cargo test --workspace --quiet

guest:
	vm/test

bench: deps-bench
	cargo build --release --quiet -p lab --examples
	target/release/examples/bench

deps-bench:
	tools/install $(PACKAGES_TEST) $(PACKAGES_BENCH)

soak:
	cargo run --release --quiet -p lab --example seam -- 100000 10000

models:
	cargo run --release --quiet -p sim --example plot_models
