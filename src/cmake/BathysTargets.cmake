# SPDX-License-Identifier: Apache-2.0

# One library per folder of src/:  bathys_add_library(core SOURCES a.cpp PUBLIC dep PRIVATE dep)
# makes the target bathys_core with src/ as include root.  A folder of headers only has no SOURCES.
function(bathys_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  if(ARG_SOURCES)
    add_library(bathys_${name} STATIC ${ARG_SOURCES})
    target_include_directories(bathys_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(bathys_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} bathys_options)
  else()
    add_library(bathys_${name} INTERFACE)
    target_include_directories(bathys_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(bathys_${name} INTERFACE ${ARG_PUBLIC})
  endif()
endfunction()

# bathys_limit(VARIABLE SECONDS): a test's TIMEOUT, which ends what hangs. The whole products of `tests/run.sh --full`, which sets
# BATHYS_FULL before it configures, may take sixteen times what the quick tier's cover of them may.
function(bathys_limit variable seconds)
  if("$ENV{BATHYS_FULL}" STREQUAL "1")
    math(EXPR seconds "16 * ${seconds}")
  endif()
  set(${variable} ${seconds} PARENT_SCOPE)
endfunction()

# One test program:  bathys_add_test(kernels_linear SOURCES linear_test.cpp LIBS bathys_kernels LABELS unit [NP 1 2 4] [TIMEOUT s]
#                                    [ENV a=b ...] [ARGS ...])
# Without NP it runs as it is; with NP it runs under mpirun once per size (test names end in _npN).  Label defaults to unit, with NP
# to mpi.  A test with NP links bathys_test_mpi_main (its own main: other ranks' printers dropped, the result reduced).
function(bathys_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS;NP;ENV;ARGS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  bathys_limit(limit ${ARG_TIMEOUT})
  add_executable(${name}_test ${ARG_SOURCES})
  target_compile_options(${name}_test PRIVATE $<$<CONFIG:Release>:-O1>)  # what is tested is optimized, the test need not be
  # src first: a header of a test folder never stands in for one of the same name in the program.
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name}_test PRIVATE BATHYS_TEST_DATA="${PROJECT_SOURCE_DIR}/tests")
  set(environment "OMP_NUM_THREADS=1" "OMP_PROC_BIND=false" ${ARG_ENV})
  if(ARG_NP)
    target_link_libraries(${name}_test PRIVATE ${ARG_LIBS} bathys_options bathys_test_mpi_main GTest::gmock)
    if(NOT ARG_LABELS)
      set(ARG_LABELS mpi)
    endif()
    foreach(np IN LISTS ARG_NP)
      add_test(NAME ${name}_np${np} COMMAND ${MPIEXEC_EXECUTABLE} ${BATHYS_MPIEXEC_FLAGS} -n ${np} $<TARGET_FILE:${name}_test> ${ARG_ARGS})
      set_tests_properties(${name}_np${np} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${limit} PROCESSORS 2
        ENVIRONMENT "${environment};${BATHYS_MPI_TEST_ENV}")
    endforeach()
  else()
    target_link_libraries(${name}_test PRIVATE ${ARG_LIBS} bathys_options bathys_test_main GTest::gmock)
    if(NOT ARG_LABELS)
      set(ARG_LABELS unit)
    endif()
    add_test(NAME ${name} COMMAND ${name}_test ${ARG_ARGS})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${limit} ENVIRONMENT "${environment}")
  endif()
endfunction()

# One test that is a script in Python and needs the packages of tests/requirements.txt:
#   bathys_add_python_test(tokenizer_library SCRIPT compare_with_library.py ARGS ... [LABELS app] [TIMEOUT s] [ENV a=b ...])
# It runs in the virtual environment that python_environment of jobs/lib.sh makes; without one it is skipped with the reason.
function(bathys_add_python_test name)
  cmake_parse_arguments(ARG "" "SCRIPT;TIMEOUT" "ARGS;LABELS;ENV" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  bathys_limit(limit ${ARG_TIMEOUT})
  if(NOT ARG_LABELS)
    set(ARG_LABELS app)
  endif()
  add_test(NAME ${name} COMMAND bash ${PROJECT_SOURCE_DIR}/tests/support/python_test.sh ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SCRIPT} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${limit} SKIP_RETURN_CODE 77
    ENVIRONMENT "OMP_NUM_THREADS=1;OMP_PROC_BIND=false;${ARG_ENV}")
endfunction()
