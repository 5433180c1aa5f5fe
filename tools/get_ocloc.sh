#!/bin/sh
# get_ocloc.sh SUITE FOLDER: unpacks Intel's offline OpenCL compiler and its closure from another Debian suite (forky or sid) into FOLDER and writes
# FOLDER/ocloc. Nothing is installed and the machine's own package sources are not touched. About 70 MB to fetch, 250 MB unpacked.
set -eu
suite=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/debs" "$folder/root"
site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -1)
printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' "$site" "$suite" > "$folder/apt/suite.sources"
options="-o Dir::Etc::SourceList=$folder/apt/suite.sources -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$folder/apt/lists
  -o Dir::Cache=$folder/apt/cache -o APT::Sandbox::User=root"
# shellcheck disable=SC2086
apt-get $options -qq update
cd "$folder/debs"
# shellcheck disable=SC2086
apt-get $options -qq download intel-ocloc libigc2 libigdfcl2 libc6 libgcc-s1 libstdc++6 zlib1g
for package in *.deb; do dpkg -x "$package" "$folder/root"; done
cat > "$folder/ocloc" <<'SCRIPT'
#!/bin/sh
root=$(dirname "$(readlink -f "$0")")/root
libraries=$root/usr/lib/x86_64-linux-gnu
exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$root"/usr/bin/ocloc-* "$@"
SCRIPT
chmod +x "$folder/ocloc"
