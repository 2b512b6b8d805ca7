# Thin: everything is in ./bootstrap, which a host without make calls directly.
# make run ARGS="demo"   make test ARGS="-k histogram"
.PHONY: run test test-thorough test-bpftrace-versions test-dtrace test-crash test-lab test-trust test-bootstrap test-packages bench incidents dist site clean

run:
	@sh ./bootstrap run $(ARGS)

test: # lint, types, import rules, the default tests
	@sh ./bootstrap test $(ARGS)

test-thorough: # the same with more random cases, and what is marked slow
	@sh ./bootstrap test -m "not versions and not lab and not crash and not sudo" --hypothesis-profile thorough $(ARGS)

test-bpftrace-versions: # root: three bpftrace versions side by side, two of them in chroots
	@sh tests/lab/bpftrace-in --build trixie sid
	@sh ./bootstrap python -m pytest -m versions $(ARGS)

test-dtrace: # root: the D scripts with a real DTrace, in a chroot
	@sh tests/lab/dtrace-in --build
	@sh ./bootstrap python -m pytest -m dtrace $(ARGS)

test-crash: # root: kills and hang-ups with real probes, also under load, and faults of the host
	@sh ./bootstrap python -m pytest -m "" tests/live/test_processes.py tests/live/test_no_orphans.py tests/live/test_faults.py $(ARGS)

test-lab: # root, qemu: throw-away guests, for hours; one whose recording is valid is not booted again
	@sh ./bootstrap python -m pytest -m lab --timeout 0 tests/lab $(ARGS)

test-trust: # root, 40 min and more: the tests of docs/TRUST.md, with a line for each of the 40; ARGS="12 13" runs some
	@sh ./bootstrap python tests/helpers/trust.py $(ARGS)

test-bootstrap: # root, debootstrap: ./bootstrap in fresh Debian 12 and 13 chroots
	@sh tests/lab/fresh-debian $(ARGS)

test-packages: dist # root, debootstrap: the single file and the deb in fresh Debian 12 and 13 chroots
	@sh tests/lab/fresh-deb dist $(ARGS)

bench: # root: writes .cache/benchmarks.md
	@sh ./bootstrap python tests/bench $(ARGS)

incidents: # recordings, pictures, casts and quoted output of docs/incidents, pictures of docs/img, screens of docs/views
	@sh ./bootstrap python docs/incidents/remake.py $(ARGS)

dist: # dist/: wheel, sdist, single file, man pages, completions, deb, SBOM, checksums, by the build tools of contrib/build.lock
	@sh ./bootstrap python contrib/release.py

site: # dist/site: the documents as a site, of which each link and anchor is checked
	@sh ./bootstrap python contrib/pages.py

clean:
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache snapshot_report.html
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
