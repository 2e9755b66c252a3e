#!/bin/sh
# Assembles the practice images into the Intel HEX files beside them. Needs Debian's package sdcc.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for source in common bank1 open; do
	sdas8051 -o "$out/$source.rel" "$source.asm"
	warnings=$(cd "$out" && sdld -n -i "$source.ihx" "$source.rel" 2>&1) || true
	if [ -n "$warnings" ]; then
		printf '%s\n' "$warnings" >&2
		exit 1
	fi
	cp "$out/$source.ihx" "$source.ihx"
done
