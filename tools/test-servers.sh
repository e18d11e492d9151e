#!/usr/bin/env bash
# Installs what the tests run besides Go, where it is missing: on Debian, as root. Elsewhere one line
# names what is missing. With the word race it installs what the race detector needs instead: a C compiler. The tests do
# not need one, and Go would compile everything anew where there is one. With the word bench it also installs wrk.
set -euo pipefail

# An ordinary user's PATH lacks the folders of the servers.
PATH="$PATH:/usr/sbin:/usr/local/sbin"

missing=()
need() { # package, then the commands that it brings
	local package=$1 command
	shift
	for command in "$@"; do
		command -v "$command" >/dev/null || { missing+=("$package") && return; }
	done
}
if [[ ${1:-} == race ]]; then
	need build-essential gcc
else
	need mariadb-server mariadbd mariadb-install-db
	need rsync rsync # with the next three, copies the data to a new node of a Galera cluster
	need socat socat
	need lsof lsof
	need iproute2 ss
	need redis-server redis-server
	need rabbitmq-server rabbitmq-server epmd
	need nginx nginx
	need prometheus prometheus promtool # asks instances, and judges the alerts
	need systemd systemd-analyze # judges the unit in deploy/systemd
	need apache2-utils ab
	[[ ${1:-} != bench ]] || need wrk wrk # loads the engine
	need chromium-headless-shell chromium-headless-shell # shows the pages to the tests
	need npm npm # fetches axe-core, which judges them
	need curl curl # asks for what ab needs
	need fontconfig fc-list
	# Without a font for them, Chinese characters are empty boxes in pictures of the pages.
	[[ -n $(fc-list :lang=zh 2>/dev/null) ]] || missing+=(fonts-wqy-zenhei)
fi

((${#missing[@]})) || exit 0
if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
	echo "tests need these Debian packages, install them first: ${missing[*]}" >&2
	exit 1
fi

echo "installing ${missing[*]}"
# The tests start servers of their own. The packages' services would only take ports and memory: this
# file keeps the installation from starting them, and they are disabled for the next boot.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -qq -o DPkg::Lock::Timeout=300)
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
if command -v systemctl >/dev/null; then
	for package in "${missing[@]}"; do
		case $package in
		mariadb-server) systemctl --quiet disable mariadb ;;
		redis-server) systemctl --quiet disable redis-server ;;
		rabbitmq-server) systemctl --quiet disable rabbitmq-server ;;
		nginx) systemctl --quiet disable nginx ;;
		prometheus) systemctl --quiet disable prometheus ;;
		esac
	done
fi
