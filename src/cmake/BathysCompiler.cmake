# SPDX-License-Identifier: Apache-2.0
# How every unit of the project is compiled.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3")  # asserts are ours (require), NDEBUG changes no meaning
if(BATHYS_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")  # lines for reports; more costs minutes of compiling
endif()
find_program(BATHYS_CCACHE ccache)
if(BATHYS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the checkout: a second clone finds what the first has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true ${BATHYS_CCACHE})
endif()

# The numbers are part of the contract: no contraction of a*b+c that was not written as fma, no fast-math, no flush to zero.
add_library(bathys_options INTERFACE)
if(BATHYS_ENABLE_CUDA)
  target_compile_options(bathys_options INTERFACE --fmad=false -ffp-contract=off -Wall)
  # fmt 9 takes nvcc for a compiler without relaxed constexpr, which its own check of format strings needs.
  target_compile_definitions(bathys_options INTERFACE FMT_USE_CONSTEXPR=1)
else()
  target_compile_options(bathys_options INTERFACE -ffp-contract=off -fno-math-errno -fno-trapping-math -march=x86-64-v3 -mtune=generic
    -Wall -Wextra -Wshadow -Wconversion -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
endif()
if(BATHYS_POISON)
  target_compile_definitions(bathys_options INTERFACE BATHYS_POISON=1)
endif()
if(BATHYS_SANITIZE)
  target_compile_options(bathys_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(bathys_options INTERFACE -fsanitize=address,undefined)
endif()
