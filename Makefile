all:
	@test -f build/build.ninja || meson setup build
	@ninja -C build
.PHONY: all
