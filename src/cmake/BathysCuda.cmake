# SPDX-License-Identifier: Apache-2.0
# The device stage's libraries: CUDA runtime, cuBLAS, NCCL.  Included with BATHYS_ENABLE_CUDA or BATHYS_ENABLE_NCCL only, so that the
# CPU program knows none of them.
#   CUDAToolkit_ROOT or CUDA_HOME  the toolkit, else nvcc on PATH, else /usr/local/cuda
#   BATHYS_NCCL_ROOT               a folder with include/nccl.h and lib/libnccl.so*, for NCCL that is not part of the toolkit; the
#                                  nvidia-nccl wheel of the Python index unpacks to such a folder, nvidia/nccl
# Targets: CUDA::cudart_static, CUDA::cublas, CUDA::cublasLt; bathys::nccl with NCCL enabled.

if(NOT CUDAToolkit_ROOT AND DEFINED ENV{CUDA_HOME})
  set(CUDAToolkit_ROOT $ENV{CUDA_HOME})
endif()
find_package(CUDAToolkit REQUIRED)

if(BATHYS_ENABLE_NCCL)
  set(BATHYS_NCCL_ROOT "" CACHE PATH "Folder with include/nccl.h and lib/libnccl.so*")
  find_path(BATHYS_NCCL_INCLUDE nccl.h HINTS ${BATHYS_NCCL_ROOT} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  # A wheel has libnccl.so.2 without the name for linkers.
  find_library(BATHYS_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${BATHYS_NCCL_ROOT} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
  if(NOT BATHYS_NCCL_INCLUDE OR NOT BATHYS_NCCL_LIBRARY)
    message(FATAL_ERROR "NCCL not found: header ${BATHYS_NCCL_INCLUDE}, library ${BATHYS_NCCL_LIBRARY}. Install it (libnccl-dev, or the "
      "nvidia-nccl wheel) and set BATHYS_NCCL_ROOT to its folder, or configure with -DBATHYS_ENABLE_NCCL=OFF")
  endif()
  file(STRINGS ${BATHYS_NCCL_INCLUDE}/nccl.h nccl_version REGEX "^#define NCCL_VERSION_CODE [0-9]+")
  string(REGEX MATCH "[0-9]+$" nccl_version "${nccl_version}")
  if(nccl_version LESS 21800)
    message(FATAL_ERROR "NCCL ${nccl_version} in ${BATHYS_NCCL_INCLUDE} is too old: non-blocking communicators need 2.18 (21800)")
  endif()
  message(STATUS "NCCL ${nccl_version}: ${BATHYS_NCCL_LIBRARY}")
  add_library(bathys_nccl SHARED IMPORTED)
  set_target_properties(bathys_nccl PROPERTIES IMPORTED_LOCATION ${BATHYS_NCCL_LIBRARY} IMPORTED_NO_SONAME OFF)
  target_include_directories(bathys_nccl SYSTEM INTERFACE ${BATHYS_NCCL_INCLUDE})
  add_library(bathys::nccl ALIAS bathys_nccl)
endif()
