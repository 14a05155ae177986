# make demo    see a slow volume become fast, in about two minutes
# make test    everything that must hold, in about 20 minutes on two cores
# make bench   measurements beside peers, into target/bench.json
# make live    loads of the evaluations on a real volume of modelled disks, off, cold and warm, in 45 minutes
# make soak    the long sweeps: simulation seeds by the hundred thousand
# make fuzz    every parser under the fuzzer, a minute each; needs nightly Rust
# make mutants faults put into the cache engine, the log and the arrays, which tests must find
# make page    the page of `hotset web`, from web/; needs Node 20, as the tests do
# make page-pictures  the pictures of the page in docs/img, light and dark
# make page-audit  Lighthouse on that page, and what watching costs with a thousand volumes
# make quick   lints and tests of the parts that touch no device: the first check of a patch
# make deb     Debian packages, into target/debian; PROFILE=demo builds in less time
# make test-deb  the package of PROFILE in a booted Debian 12, in two minutes: install, reboot, upgrade, purge
# make test-rpm  the RPM of PROFILE in a booted Debian 12 with rpm: install, upgrade, remove
# make deb-arm64  the packages for 64-bit ARM too, by a cross compiler; untested on such a machine
# make test-arm64  tests of the crates without system calls, on 64-bit ARM in emulation
# make release  all files of a release, in target/release-VERSION; make test-image runs its container image
# make test-ceph  a volume on images of a real Ceph of one node, in a guest
# make notices licences of all that the programs contain; refuses one that about.toml does not accept
# make book    the manual of docs/ as HTML, in target/book
# make models  the plots of docs/models.md
#
# Each installs the Debian packages it lacks, and says which.

SHELL := bash
PACKAGES_TEST := fio nginx-light apache2-bin libnbd-bin mandoc zsh fish bsdutils nbdkit qemu-utils e2fsprogs fuse3 mount openssl shellcheck util-linux xfsprogs btrfs-progs lvm2 prometheus tmux chromium chromium-driver
PACKAGES_STACK := postgresql libnbd-bin e2fsprogs fuse3 mount util-linux
PACKAGES_BENCH := fio valgrind nbdkit qemu-utils jq
PACKAGES_LIVE := fio nginx-light libnbd-bin e2fsprogs fuse3 mount util-linux postgresql python3
PACKAGES_DEMO := nginx-light libnbd-bin e2fsprogs fuse3 mount util-linux util-linux-extra
SHELL_SCRIPTS := tools/install tools/live tools/deb tools/rpm tools/release tools/image tools/book tools/page-notices packaging/postinst packaging/postrm packaging/rpm-post packaging/rpm-postun packaging/test packaging/test-rpm packaging/guest.sh packaging/test-image tools/time-write-back vm/prepare vm/run vm/test vm/with-ceph vm/with-forwards vm/database-files vm/database.sh vm/san.sh vm/guest/init vm/guest/judge-root packaging/initramfs/hook packaging/initramfs/local-top packaging/initramfs/local-block $(filter-out %.jq,$(wildcard vm/tests/* vm/soak/* vm/bench/*))

.PHONY: demo test lint clippy shellcheck unit unit-parts unit-commands guest bench live soak fuzz mutants models page page-pictures page-audit deps-test quick deb deb-arm64 release test-image test-arm64 test-deb test-rpm test-ceph notices book

demo:
	tools/install $(PACKAGES_DEMO)
	cargo build --profile demo --quiet -p hotset
	cargo build --profile demo --quiet -p hotset-lab --no-default-features
	target/demo/hotset-lab demo

# Packages come while what needs none of them is checked.
test:
	$(MAKE) --jobs 2 --output-sync deps-test clippy
	$(MAKE) shellcheck unit guest

deps-test:
	tools/install $(PACKAGES_TEST)
	for folder in tools/walk-api web; do test -d $$folder/node_modules || (cd $$folder && npm ci --no-audit --no-fund); done

lint: clippy shellcheck

PARTS := -p tidy -p block -p cache -p layout -p policy -p shard -p writelog

quick:
	cargo fmt --all --check
	cargo clippy $(PARTS) --all-targets --quiet -- -D warnings
	cargo test $(PARTS) --quiet

clippy:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo clippy -p proof --no-default-features --features nodes --examples --quiet -- -D warnings
	cargo clippy -p hotset -p hotset-lab --no-default-features --quiet -- -D warnings

shellcheck:
	shellcheck --external-sources $(SHELL_SCRIPTS)

# Most tests of the command wait more than they work: more of them at once than processors.
unit:
	cargo test --workspace --lib --bins --tests --no-run --quiet
	$(MAKE) --jobs 2 --keep-going --output-sync unit-parts unit-commands

unit-parts:
	cargo test --workspace --lib --bins --test suite --no-fail-fast --quiet

unit-commands:
	cargo test --workspace --test commands --no-fail-fast --quiet -- --test-threads $$((3 * $$(nproc)))

# With the features of the whole workspace, so that after `unit` nothing is left to build.
guest:
	cargo build --quiet --workspace --bins --tests
	HOTSET=$(CURDIR)/target/debug/hotset vm/test

bench:
	tools/install $(PACKAGES_BENCH)
	cargo build --release --quiet -p hotset -p measurements --bin hotset --example bench --example nop --example hits --example arrays --example memory --example policy_cost
	target/release/examples/bench

live:
	tools/install $(PACKAGES_LIVE)
	cargo build --profile demo --quiet -p hotset -p hotset-lab
	tools/live var/live

soak:
	cargo build --release --quiet -p hotset
	cargo run --release --quiet -p proof --example seam -- --seeds 100000 --start 10000
	cargo run --release --quiet -p proof --example cachesim -- --seeds 100000 --start 0
	cargo run --release --quiet -p proof --example raidsim -- --seeds 100000 --start 0
	cargo run --release --quiet -p hotset-lab -- crash --cases 100000 --threads "$$(nproc)" --json
	cargo run --release --quiet -p hotset-lab -- crash --cases 100 --boundaries
	for mode in ordered journaled coalesced; do \
		cargo run --release --quiet -p hotset-lab -- crash --mode $$mode --cases 70000 --threads "$$(nproc)" --json || exit 1; done
	cargo run --release --quiet -p hotset-lab -- node --cases 50000 --threads "$$(nproc)" --json
	cargo run --release --quiet -p proof --example node -- --write-back --seeds 20000 --threads "$$(nproc)" --json
	cargo run --release --quiet -p hotset-lab -- flips --flips 10000
	cargo run --release --quiet -p hotset-lab -- storm --minutes 240 --threads 4 --json
	cargo test --release --quiet -p hotset-lab --test commands storm:: -- --ignored
	cargo test --release --quiet -p raid --lib search:: -- --ignored
	cargo test --release --quiet -p advise --lib -- --ignored
	tools/install $(PACKAGES_STACK)
	cargo run --release --quiet -p hotset-lab -- stack
	cargo run --release --quiet -p hotset-lab -- stack --kills 200
	CELLS=all vm/tests/drill-write-back
	KILLS=100 vm/tests/hotset-ublk
	KILLS=100 vm/tests/hotset-vhost-user
	GONE_S=60 vm/soak/hotset-nvme-tcp
	GONE_S=60 vm/soak/hotset-iscsi
	GONE_S=60 vm/soak/hotset-rbd
	for san in nvme-tcp iscsi rbd; do vm/soak/hotset-$$san database || exit 1; done
	vm/soak/hotset-reservations
	VM_KERNEL=trixie-backports vm/soak/hotset-reservations
	vm/soak/ublk-file-systems
	$(MAKE) deb && vm/soak/hotset-root
	HOTSET_ROUNDS=100 cargo test --release --quiet -p hotset --test commands volume_is_a_file_system

# A target is its directory and its name.
FUZZ_TARGETS := nbd/server nbd/client control/text trace/formats layout/blocks layout/sealed raid/members virtio/guest web/requests
SECONDS := 60

fuzz:
	cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
	$(foreach target,$(FUZZ_TARGETS),cargo +nightly fuzz run --fuzz-dir fuzz/$(dir $(target)) $(notdir $(target)) \
		-- -max_total_time=$(SECONDS) &&) true

# First those made by hand against the campaigns, then every one that
# cargo-mutants makes against the crate's own tests.
mutants:
	cargo run --quiet -p proof --example mutants -- lab/proof/mutations/cache.toml cachesim --seeds 400 --first
	cargo run --quiet -p proof --example mutants -- lab/proof/mutations/raid.toml raidsim --seeds 4000 --first
	cargo run --quiet -p proof --example mutants -- lab/proof/mutations/crash.toml crash --seeds 8000 --first
	cargo run --quiet -p proof --example mutants -- lab/proof/mutations/node.toml node --seeds 400 --first
	cargo run --quiet -p proof --example mutants -- lab/proof/mutations/durable.toml node
	cargo run --quiet -p proof --example mutants -- lab/proof/mutations/port.toml port --seeds 3000 --first
	cargo run --quiet -p proof --example mutants -- lab/proof/mutations/writeback.toml writeback --seeds 2000 --first
	cargo run --quiet -p proof --example mutants -- lab/proof/mutations/seam.toml seam --seeds 2000 --first
	cargo run --quiet -p hotset-lab -- storm --mutations lab/proof/mutations/storm.toml --threads 4
	cargo mutants --version >/dev/null 2>&1 || cargo install --locked cargo-mutants
	cargo mutants --package cache --package writelog --jobs 1 --output target/cargo-mutants

# What it builds is kept in the tree, so that cargo needs no Node.
page:
	cd web && npm ci --no-audit --no-fund && npm run build
	cd web && ../tools/page-notices >NOTICES.md

page-pictures: deps-test
	HOTSET_PICTURES=/var/lib cargo test --workspace --test commands page::

page-audit:
	tools/install $(PACKAGES_TEST)
	cd tools/page-audit && npm ci --no-audit --no-fund
	cargo build --release --quiet -p hotset
	HOTSET=$(CURDIR)/target/release/hotset cargo test --workspace --test commands watching:: -- --ignored --nocapture --test-threads 1

book:
	mdbook --version >/dev/null 2>&1 || cargo install --locked mdbook
	tools/book
	@echo target/book/index.html

models:
	cargo run --release --quiet -p drives --example plot_models

PROFILE := release
PACKAGES_DEB := lintian dpkg-dev file
PACKAGES_TEST_DEB := mmdebstrap systemd-container
PACKAGES_TEST_RPM := $(PACKAGES_TEST_DEB) rpm

notices:
	cargo about --version >/dev/null 2>&1 || cargo install --locked cargo-about --features cli
	cargo fetch --locked --quiet
	mkdir -p target/packaging
	for program in crates/hotset lab/hotset-lab; do \
		cargo about generate --fail --frozen --manifest-path $$program/Cargo.toml about.hbs \
			--output-file target/packaging/$${program##*/}-notices.md || exit 1; done

deb: notices
	tools/install $(PACKAGES_DEB)
	cargo deb --version >/dev/null 2>&1 || cargo install --locked cargo-deb
	cargo build --profile $(PROFILE) --quiet -p hotset -p hotset-lab
	tools/deb $(PROFILE)
	lintian --fail-on error target/debian/*.deb
	ls -l target/debian

STATIC := x86_64-unknown-linux-musl
PACKAGES_RELEASE := musl-tools buildah
PACKAGES_IMAGE := podman runc libnbd-bin

# Packages, static programs, container image, components and checksums, in target/release-VERSION.
release: deb
	tools/install $(PACKAGES_RELEASE)
	rustup target add $(STATIC)
	cargo generate-rpm --version >/dev/null 2>&1 || cargo install --locked cargo-generate-rpm
	cargo cyclonedx --version >/dev/null 2>&1 || cargo install --locked cargo-cyclonedx
	cargo build --profile $(PROFILE) --target $(STATIC) --quiet -p hotset -p hotset-lab
	tools/release $(PROFILE)

test-image: release
	tools/install $(PACKAGES_IMAGE)
	packaging/test-image target/release-*/hotset-*.oci.tar

# 64-bit ARM: the package, and tests of crates without system calls in emulation.
ARM := aarch64-unknown-linux-gnu
ARM_CRATES := block layout policy filter origin trace ublk port
PACKAGES_ARM := gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
ARM_CARGO := CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu" cargo

deb-arm64: deb
	tools/install $(PACKAGES_ARM)
	rustup target add $(ARM)
	$(ARM_CARGO) build --profile $(PROFILE) --target $(ARM) --quiet -p hotset -p hotset-lab
	$(ARM_CARGO) run --profile $(PROFILE) --target $(ARM) --quiet -p hotset -- --version
	tools/deb $(PROFILE) $(ARM)
	lintian --fail-on error target/debian/*_arm64.deb
	ls -l target/debian

test-arm64:
	tools/install $(PACKAGES_ARM)
	rustup target add $(ARM)
	$(ARM_CARGO) test --target $(ARM) --quiet $(ARM_CRATES:%=-p %)

test-deb: deb
	tools/install $(PACKAGES_TEST_DEB)
	packaging/test

test-rpm: deb
	tools/install $(PACKAGES_TEST_RPM)
	cargo generate-rpm --version >/dev/null 2>&1 || cargo install --locked cargo-generate-rpm
	packaging/test-rpm $(PROFILE)

test-ceph:
	vm/soak/hotset-rbd
	vm/soak/hotset-rbd database
