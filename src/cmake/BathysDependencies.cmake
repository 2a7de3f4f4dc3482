# SPDX-License-Identifier: Apache-2.0
# Every outside library, found in one place (docs/running.md lists the packages; jobs/lib.sh installs them on Debian).

# Kokkos: any from 3.4 to 5.x (asked for without a version: older version files accept their own major only).
find_package(Kokkos CONFIG REQUIRED)
if(Kokkos_VERSION VERSION_LESS 3.4)
  message(FATAL_ERROR "Kokkos ${Kokkos_VERSION} found in ${Kokkos_DIR}, 3.4 or newer is needed; set Kokkos_ROOT")
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
if(NOT BATHYS_ENABLE_CUDA)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI REQUIRED COMPONENTS C CXX)
  find_package(CLI11 REQUIRED)
  find_package(HDF5 REQUIRED COMPONENTS C)
  find_package(OpenSSL REQUIRED COMPONENTS Crypto)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
  pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
  pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
endif()
if(BATHYS_ENABLE_CUDA OR BATHYS_ENABLE_NCCL)
  # MPI carries NCCL's id and the host's control; the device check alone does without.
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI COMPONENTS C CXX)
  include(BathysCuda)
endif()
if(BATHYS_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

# mpirun in tests: more ranks than cores are wanted, also for root in a container.
set(BATHYS_MPIEXEC_FLAGS --oversubscribe --bind-to none)
set(BATHYS_MPI_TEST_ENV "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_mpi_yield_when_idle=1;OMPI_MCA_rmaps_base_oversubscribe=1")
