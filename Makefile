# `make quick` sets up and measures; `make test` sets up and runs the core of the tests, in at most ten minutes on two
# quiet cores; `make test-all` runs the rest of the tests. All skip what is there already. tests/conftest.py says
# which tests belong to which part.
.PHONY: quick test test-all fuzz test-contract test-vm test-lifecycle test-xen test-kvm test-cluster lint format setup setup-test kernels-test sanitize wheel bench bench-kernels clean

PYTHON := .venv/bin/python

quick: setup
	.venv/bin/nearmetal quick

test: setup-test kernels-test
	@scripts/test.sh core

test-all: setup-test
	@scripts/test.sh more

# Ten minutes of damaged and invented files for every reader of files that travel; make test spends a minute on it.
fuzz: setup-test
	FUZZ_SECONDS=1200 $(PYTHON) -m pytest tests/attack/test_fuzz.py -n 2 -q $(ARGS)

# Prints at its end: backend, whether it works here, tests passed and failed.
test-contract: setup-test
	$(PYTHON) -m pytest $(addprefix tests/contract/test_,backends.py backends_faults.py backends_seats.py \
	  guests.py libvirt_guests.py) -q $(ARGS)

# Everything about virtual machines: each guest boots in seconds by KVM, and in many by an emulator.
test-vm: setup-test
	$(PYTHON) -m pytest tests/unit/test_guests_parts.py tests/unit/test_libvirt.py \
	  tests/unit/study_file/test_study_file_guest.py \
	  $(addprefix tests/contract/test_,guests.py guests_network.py libvirt_guests.py) \
	  $(addprefix tests/system/test_,guests_run.py guest_faults.py) -q $(ARGS)

# Checkpoints and moves: methods x backends, then with faults in the middle. An hour on two cores.
test-lifecycle: setup-test
	$(PYTHON) -m pytest $(addprefix tests/unit/test_,lifecycle_table.py job_move_parts.py) \
	  $(addprefix tests/contract/test_,checkpoints.py migration.py libvirt_moves.py monitor.py job_ranks.py probe.py) \
	  $(addprefix tests/contract/test_,multiplex.py precopy_in_guest.py) tests/system/test_dmtcp_jobs.py \
	  $(addprefix tests/system/test_,checkpoint_run.py checkpoint_faults.py random_faults.py random_faults_guests.py migration_run.py) \
	  $(addprefix tests/system/test_,moving.py job_moves.py) \
	  $(addprefix tests/system/test_moving_,hosts.py unlike.py containers.py faults.py cut.py guests.py) -q $(ARGS)

setup:
	@scripts/setup.sh run

setup-test:
	@scripts/setup.sh test

# Guests of Xen on a dom0 that is emulated: all there is, moves, an MPI job over two, a study with its verdict,
# boots with Xen against boots without, and the study of 2009. An hour on two cores.
test-xen: setup-test
	$(PYTHON) -m pytest $(addprefix tests/nested/,test_nested_xen.py whole_xen.py boots_xen.py two_vm_xen.py) \
	  -p no:randomly --timeout 7200 $(ARGS)

# KVM for real, in a machine that is emulated with the extensions of a processor.
test-kvm: setup-test
	$(PYTHON) -m pytest tests/nested/test_nested_kvm.py $(ARGS)

# Several workers: on this machine, by ssh from a daemon on the loopback interface, and in jobs of two real Slurms and
# a real HTCondor, whose packages are downloaded and unpacked but not installed; and ranks on two machines, which are
# network namespaces with a daemon each, by every network between them. Twenty minutes on two cores.
test-cluster: setup-test
	$(PYTHON) -m pytest $(addprefix tests/unit/test_,engines.py inventory.py nodes_check.py plan_nodes.py records_claims.py \
	  coordinator.py coordinator_memory.py run_nodes.py) \
	  tests/unit/study_file/test_study_file_machines.py tests/unit/test_copies.py tests/unit/test_real_network_parts.py \
	  $(addprefix tests/contract/test_,agent_on_a_machine.py remote_lock.py) \
	  $(addprefix tests/system/test_engine_,local.py kills.py ssh.py slurm.py htcondor.py) \
	  $(addprefix tests/system/test_real_,nodes.py networks.py trees.py) tests/nested/test_nested_nfs.py -q $(ARGS)

lint: setup-test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PYTHON) scripts/check_untrusted.py
	clang-format --dry-run --Werror $$(git ls-files 'kernels/*.c' 'kernels/*.h')

format:
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .
	clang-format -i $$(git ls-files 'kernels/*.c' 'kernels/*.h')

kernels-test:
	cmake -S kernels -B build/kernels >/dev/null
	cmake --build build/kernels --parallel 2
	ctest --test-dir build/kernels --output-on-failure

sanitize:
	cmake -S kernels -B build/sanitize -DNEARMETAL_SANITIZE=address,undefined >/dev/null
	cmake --build build/sanitize --parallel 2
	ctest --test-dir build/sanitize --output-on-failure

wheel: setup
	.venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .

bench: setup-test
	$(PYTHON) -m benchmarks.kernels
	$(PYTHON) -m benchmarks.npb
	$(PYTHON) -m benchmarks.hpcc
	$(PYTHON) -m benchmarks.blast
	$(PYTHON) -m benchmarks.profile
	$(PYTHON) -m benchmarks.networks
	$(PYTHON) -m benchmarks.starts
	$(PYTHON) -m benchmarks.guest_boot
	$(PYTHON) -m benchmarks.lifecycle
	$(PYTHON) -m benchmarks.trial_cost
	$(PYTHON) -m benchmarks.sampler
	$(PYTHON) -m benchmarks.analysis
	$(PYTHON) -m benchmarks.resolution
	$(PYTHON) -m benchmarks.first_run
	$(PYTHON) -m benchmarks.truths
	$(PYTHON) -m benchmarks.views

# ARGS="--class B --march x86-64-v3 --reference NPB3.4-MPI-v3/bin" and more: python -m benchmarks.npb --help
bench-kernels: setup-test
	$(PYTHON) -m benchmarks.npb $(ARGS)

clean:
	rm -rf build dist .venv .venv-veros
