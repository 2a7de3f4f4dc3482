#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and installs Kokkos 3.4.01 for bathys:  install_kokkos.sh host|cuda
#   host  Serial and OpenMP back ends, for any x86-64-v3 CPU
#   cuda  Serial and CUDA back ends, compiled with nvcc (found on PATH, in CUDA_HOME or /usr/local/cuda)
# The last line on standard output is the folder for -DKokkos_ROOT; all else goes to standard error.  A finished
# installation is left alone.  Read from the environment:
#   BATHYS_DEPS           where to install, default ${XDG_CACHE_HOME:-~/.cache}/bathys
#   BATHYS_KOKKOS_SOURCE  a Kokkos source folder to use instead of fetching one (a machine without network)
set -euo pipefail

version=3.4.01
recipe=1  # raised when the steps below change, so that old installations are built anew
package=pykokkos-base package_version=0.0.7
package_sha256=6339daced1e81a2748f381847d8717cd77d824407da3c263b9491b5630c642b0
debian_version=13.2.0-4 debian_tar=trilinos_13.2.0.orig.tar.gz
debian_sha256=0ddb47784ba7b8a6b9a07a4822b33be508feb4ccd54301b2a5d10c9e54524b90

say() { printf 'install_kokkos: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

[[ $# -eq 1 && ( $1 == host || $1 == cuda ) ]] || die "expected one argument, host or cuda"
mode=$1
deps=${BATHYS_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/bathys}
prefix=$deps/kokkos-$version-$mode
stamp=$prefix/.bathys-recipe

finished() { [[ -f $stamp && $(<"$stamp") == "$recipe" ]]; }
if finished; then
  echo "$prefix"
  exit 0
fi
for tool in cmake ninja g++ tar sha256sum flock; do
  command -v "$tool" > /dev/null || die "$tool is missing; install it (docs/running.md lists the packages) and run this again"
done
mkdir -p "$deps" || die "cannot write to $deps; set BATHYS_DEPS to a writable folder"
exec 9> "$deps/.kokkos-$mode.lock"
flock 9  # two runs side by side: the second finds the work done
if finished; then
  echo "$prefix"
  exit 0
fi
work=$(mktemp -d "$deps/.kokkos-$mode.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The Python package holds Kokkos's whole source.  pip is asked for the source package as it is: it wants the package's metadata first,
# which would take the package's whole build system, so the name of that build system is given to a stand-in that states them.
fetch_from_python_index() {
  command -v python3 > /dev/null && python3 -m pip --version > /dev/null 2>&1 || return 1
  mkdir -p "$work/stand_in/setuptools" "$work/get"
  : > "$work/stand_in/setuptools/__init__.py"
  cat > "$work/stand_in/setuptools/build_meta.py" << END
import os


def prepare_metadata_for_build_wheel(folder, settings=None):
    info = "${package//-/_}-$package_version.dist-info"
    os.mkdir(os.path.join(folder, info))
    with open(os.path.join(folder, info, "METADATA"), "w") as out:
        out.write("Metadata-Version: 2.1\nName: $package\nVersion: $package_version\n")
    return info
END
  echo "$package==$package_version --hash=sha256:$package_sha256" > "$work/requirements.txt"
  PYTHONPATH=$work/stand_in python3 -m pip download --quiet --no-deps --no-build-isolation --no-binary :all: --require-hashes \
    --requirement "$work/requirements.txt" --dest "$work/get" >&2 || return 1
  local file=$work/get/$package-$package_version.tar.gz
  echo "$package_sha256  $file" | sha256sum --check --quiet >&2 || return 1
  mkdir -p "$work/source"
  tar -xzf "$file" -C "$work/source" --strip-components=3 --wildcards '*/external/kokkos/*'
}

# Debian 12's trilinos holds the same Kokkos; its source is read with package lists of our own, the system's stay as they are.
fetch_from_debian() {
  command -v apt-get > /dev/null || return 1
  local mirror
  # shellcheck disable=SC2016  # apt's own variable
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | sort -u | head -n 1)
  [[ -n $mirror ]] || return 1
  mkdir -p "$work/lists/partial" "$work/get" "$work/source"
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main" > "$work/src.list"
  local options=(-o "Dir::Etc::sourcelist=$work/src.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::Lists=$work/lists")
  apt-get "${options[@]}" -qq update >&2 || return 1
  (cd "$work/get" && apt-get "${options[@]}" -qq source --download-only --tar-only --only-source "trilinos=$debian_version" >&2) || return 1
  echo "$debian_sha256  $work/get/$debian_tar" | sha256sum --check --quiet >&2 || return 1
  tar -xzf "$work/get/$debian_tar" -C "$work/source" --strip-components=3 --wildcards '*/packages/kokkos/*'
}

if [[ -n ${BATHYS_KOKKOS_SOURCE:-} ]]; then
  [[ -f $BATHYS_KOKKOS_SOURCE/CMakeLists.txt ]] || die "BATHYS_KOKKOS_SOURCE=$BATHYS_KOKKOS_SOURCE has no CMakeLists.txt"
  say "copying $BATHYS_KOKKOS_SOURCE"
  cp -r "$BATHYS_KOKKOS_SOURCE" "$work/source"
elif say "fetching Kokkos $version from the Python package index" && fetch_from_python_index; then
  :
elif say "not to be had there; fetching it from Debian's trilinos" && fetch_from_debian; then
  :
else
  die "cannot fetch Kokkos $version: neither the Python package $package $package_version (needs python3 with pip) nor Debian's source" \
    "package trilinos $debian_version could be had; put a Kokkos source into BATHYS_KOKKOS_SOURCE, or an installation into Kokkos_ROOT"
fi

# edit FILE SED-EXPRESSION MARK: MARK must stand in the file afterwards.
edit() {
  sed -i "$2" "$work/source/$1"
  grep -qF -- "$3" "$work/source/$1" || die "the edit of $1 for CUDA 13 found nothing to change: is this Kokkos $version?"
}

configure=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_EXTENSIONS=OFF -DCMAKE_CXX_FLAGS=-march=x86-64-v3 -DCMAKE_POSITION_INDEPENDENT_CODE=ON
  -DCMAKE_INSTALL_LIBDIR=lib -DKokkos_ENABLE_SERIAL=ON "-DCMAKE_INSTALL_PREFIX=$prefix")
if [[ $mode == host ]]; then
  configure+=(-DCMAKE_CXX_STANDARD=20 -DKokkos_CXX_STANDARD=20 -DKokkos_ENABLE_OPENMP=ON)
else
  if ! command -v nvcc > /dev/null; then
    PATH=${CUDA_HOME:-/usr/local/cuda}/bin:$PATH
    command -v nvcc > /dev/null || die "nvcc is missing; put the CUDA toolkit's bin folder on PATH or set CUDA_HOME"
  fi
  # Kokkos 3.4 with CUDA 13: a newer oldest architecture, C++20 let through to nvcc, no half types (unused, removed intrinsics), and two
  # runtime functions that gained an argument.
  edit bin/nvcc_wrapper 's/^default_arch="sm_35"/default_arch="sm_80"/' 'default_arch="sm_80"'
  edit bin/nvcc_wrapper 's/^  --std=c++17|-std=c++17)/  --std=c++17|-std=c++17|--std=c++20|-std=c++20)/' '|-std=c++20)'
  edit core/src/Cuda/Kokkos_Cuda_Half.hpp 's/^#ifdef KOKKOS_ENABLE_CUDA$/#if 0/' '#if 0'
  edit core/src/Cuda/Kokkos_Cuda_Graph_Impl.hpp \
    's/(m_graph, &pred_cuda_node, &cuda_node, 1)/(m_graph, \&pred_cuda_node, \&cuda_node, nullptr, 1)/' 'nullptr, 1)'
  edit core/src/Cuda/Kokkos_CudaSpace.cpp \
    's/(ptr, bytes, space.cuda_device(),/(ptr, bytes, cudaMemLocation{cudaMemLocationTypeDevice, space.cuda_device()}, 0,/' cudaMemLocationTypeDevice
  chmod +x "$work/source/bin/nvcc_wrapper"
  configure+=("-DCMAKE_CXX_COMPILER=$work/source/bin/nvcc_wrapper" -DCMAKE_CXX_STANDARD=17 -DKokkos_CXX_STANDARD=17
    -DKokkos_ENABLE_CUDA=ON -DKokkos_ENABLE_CUDA_LAMBDA=ON -DKokkos_ARCH_AMPERE80=ON)
fi

say "building in $work (about a minute for host, two for cuda)"
log=$deps/kokkos-$mode.log
if ! { cmake -S "$work/source" -B "$work/build" -G Ninja "${configure[@]}" && ninja -C "$work/build" &&
  DESTDIR=$work/stage ninja -C "$work/build" install; } > "$log" 2>&1; then
  tail -n 20 "$log" >&2
  die "the build of Kokkos failed; the whole log is $log"
fi
# The wrapper that compiled Kokkos compiles what uses it.
if [[ $mode == cuda ]]; then
  cp "$work/source/bin/nvcc_wrapper" "$work/stage$prefix/bin/nvcc_wrapper"
  sed -i "s|$work/source/bin/nvcc_wrapper|$prefix/bin/nvcc_wrapper|g" "$work/stage$prefix"/lib/cmake/Kokkos/*.cmake
fi
echo "$recipe" > "$work/stage$prefix/.bathys-recipe"
rm -rf "$prefix"
mv "$work/stage$prefix" "$prefix"
rm -f "$log"
say "installed $prefix"
echo "$prefix"
