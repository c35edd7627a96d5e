#!/bin/sh
# Makes sure that the programs which the tests start are installed: the servers, or those that its
# argument names: "browser", or "prometheus" for Prometheus and promtool.
#
# It installs them only where that surprises nobody: as root, with apt-get, on a
# CI machine or in a container. Elsewhere it names what is missing and fails.
set -eu

# The programs of which one has to be on PATH, with bars between them, and the Debian packages that hold the first, with
# commas. A browser without fonts shows no text.
case ${1:-servers} in
servers)
	needed='
redis-server    redis-server
redis-cli       redis-tools
redis-sentinel  redis-sentinel
postgres        postgresql
pgbouncer       pgbouncer
curl            curl
'
	brew='redis postgresql pgbouncer curl'
	;;
browser)
	needed='
chromium|chromium-browser|google-chrome|google-chrome-stable  chromium,fonts-liberation
'
	brew='--cask chromium'
	;;
prometheus)
	needed='
prometheus  prometheus
promtool    prometheus
'
	brew='prometheus'
	;;
*)
	echo "usage: $0 [servers|browser|prometheus]" >&2
	exit 2
	;;
esac

# installed PROGRAMS tells whether one of them is on PATH, or where Debian puts servers: outside of an
# ordinary user's PATH, and PostgreSQL in a directory for each version. The tests look there, too.
installed() {
	for name in $(echo "$1" | tr '|' ' '); do
		if command -v "$name" >/dev/null 2>&1; then
			return 0
		fi
		for path in /usr/lib/postgresql/*/bin/"$name" /usr/sbin/"$name"; do
			if [ -x "$path" ]; then
				return 0
			fi
		done
	done
	return 1
}

# missing COLUMN lists what is absent: programs (1) or their packages (2).
missing() {
	echo "$needed" | while read -r programs packages; do
		if [ -n "$programs" ] && ! installed "$programs"; then
			if [ "$1" = 1 ]; then echo "${programs%%|*}"; else echo "$packages" | tr ',' '\n'; fi
		fi
	done | sort -u | xargs
}

# disposable tells whether this machine is nobody's own: CI, or a container.
disposable() {
	case ${CI:-} in
	'' | 0 | false) ;;
	*) return 0 ;;
	esac
	[ -e /.dockerenv ] || [ -e /run/.containerenv ] || [ ! -d /run/systemd/system ]
}

programs=$(missing 1)
if [ -z "$programs" ]; then
	exit 0
fi
packages=$(missing 2)

if ! command -v apt-get >/dev/null 2>&1; then
	echo "The tests need these programs, which are not on PATH: $programs" >&2
	echo "Install them with the system's package manager; with Homebrew: brew install $brew" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ] || ! disposable; then
	echo "The tests need these programs, which are not on PATH: $programs" >&2
	echo "Install them with: sudo apt-get install $packages" >&2
	exit 1
fi

echo "The tests need these programs, which are not on PATH: $programs"
echo "Installing: $packages"

# Debian starts a service as soon as it is installed. The tests start their own
# servers, and nothing should listen on a standard port because of them.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update
# shellcheck disable=SC2086 # one word per package
apt-get install -y --no-install-recommends $packages

programs=$(missing 1)
if [ -n "$programs" ]; then
	echo "Installed $packages, but these programs are still not on PATH: $programs" >&2
	exit 1
fi
