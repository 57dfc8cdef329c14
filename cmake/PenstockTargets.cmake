# Three functions, so that every target has the same warnings, include root and labels.
include_guard()

add_library(penstock_flags INTERFACE)
target_include_directories(penstock_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(penstock_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Werror;-fno-omit-frame-pointer>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-fno-omit-frame-pointer;--Werror=all-warnings>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of overlap in std::string's operator+ when it inlines it (GCC bug 105329).
  target_compile_options(penstock_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(penstock_flags INTERFACE -Wthread-safety)
endif()

set(PENSTOCK_SANITIZE "" CACHE STRING "Sanitizers for every target: address,undefined or thread")
if(PENSTOCK_SANITIZE)
  add_compile_options(-fsanitize=${PENSTOCK_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PENSTOCK_SANITIZE})
  if(PENSTOCK_SANITIZE STREQUAL "thread")
    # GCC warns that TSan does not model fences; we use none.
    add_compile_options(-Wno-tsan)
  endif()
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Half a gigabyte before GCC collects garbage: a tenth less time for most files.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
endif()

# Presets with CMAKE_UNITY_BUILD compile several sources of a target as one, in half the time. APART names
# those that are compiled alone, since other sources of the target have the same file-local names.

# penstock_library(NAME SRCS a.cc b.cc DEPS x y [APART b.cc]): one folder or one concept.
function(penstock_library NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;APART" ${ARGN})
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(ARG_SRCS)
    add_library(${NAME} STATIC ${ARG_SRCS})
    target_link_libraries(${NAME} PUBLIC penstock_flags ${ARG_DEPS})
  else()
    add_library(${NAME} INTERFACE)
    target_link_libraries(${NAME} INTERFACE penstock_flags ${ARG_DEPS})
  endif()
endfunction()

function(penstock_binary NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;APART" ${ARGN})
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE penstock_flags ${ARG_DEPS})
  # For tools/bundle. RPATH rather than RUNPATH, since it also serves the libraries of libraries.
  set_target_properties(${NAME} PROPERTIES
    BUILD_RPATH "$ORIGIN/../lib" INSTALL_RPATH "$ORIGIN/../lib")
  target_link_options(${NAME} PRIVATE LINKER:--disable-new-dtags)
endfunction()

# penstock_test(NAME LABELS unit SRCS x_test.cc DEPS y [APART x_test.cc] [TIMEOUT 120]): one ctest entry for one
# GoogleTest binary. LABELS are of: unit kernel server e2e gpu slow.
function(penstock_test NAME)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;SRCS;DEPS;APART" ${ARGN})
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(NOT ARG_LABELS)
    message(FATAL_ERROR "penstock_test(${NAME}) has no LABELS")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE penstock_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  # Optimising the tests themselves would take a third of the build for nothing.
  target_compile_options(${NAME} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${NAME} COMMAND ${NAME})
  set_tests_properties(${NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "PENSTOCK_TESTDATA=${PROJECT_SOURCE_DIR}/tests/testdata")
endfunction()
