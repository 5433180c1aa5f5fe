# Thin front door: each target installs what is missing, then calls CMake. `make help` lists the targets.
.DEFAULT_GOAL := build
PRESET ?= release
MODEL  ?= models/story
PROMPT ?= The old house stood at the end of the road, and
PREFIX ?= /usr/local
BINARY := build/$(PRESET)/bin/pergola

.PHONY: help packages build run test install format lint clean

help:            ## show this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

packages:
	@tools/install_packages.sh

build/$(PRESET)/build.ninja: | packages
	cmake --preset $(PRESET)

build: packages build/$(PRESET)/build.ninja ## build build/release/bin/pergola
	cmake --build --preset $(PRESET)

run: build       ## generate text with the bundled model (MODEL=..., PROMPT=...)
	$(BINARY) run $(MODEL) --raw -p "$(PROMPT)" -n 120 --temperature 0.7

test: build      ## run all tests
	ctest --test-dir build/$(PRESET) --output-on-failure -j 2

install: build   ## install the program under PREFIX (default /usr/local)
	cmake --install build/$(PRESET) --prefix $(PREFIX)

format:          ## format every source file
	git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

lint: build      ## clang-tidy over all sources
	git ls-files 'src/*.cc' | grep -Ev '_(avx2|avx512|avx512fp16|amx)\.cc$$' | xargs -P 2 -n 4 clang-tidy --quiet -p build/$(PRESET)

clean:           ## remove all build folders
	rm -rf build
