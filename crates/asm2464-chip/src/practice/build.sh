#!/bin/sh
# Assembles the practice images into the Intel HEX files beside them. Needs Debian's package sdcc.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for half in common bank1 open; do
	sdas8051 -o "$out/$half.rel" "$half.asm"
	warnings=$(cd "$out" && sdld -n -i "$half.ihx" "$half.rel" 2>&1) || true
	if [ -n "$warnings" ]; then
		printf '%s\n' "$warnings" >&2
		exit 1
	fi
	cp "$out/$half.ihx" "$half.ihx"
done
