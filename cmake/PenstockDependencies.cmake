# Everything comes from the distribution or PyPI; docs/dependencies.md has the reason for each.
include_guard()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(GTest REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenBLAS REQUIRED CONFIG)

add_library(penstock_openblas INTERFACE)
target_include_directories(penstock_openblas SYSTEM INTERFACE ${OpenBLAS_INCLUDE_DIRS})
target_link_libraries(penstock_openblas INTERFACE ${OpenBLAS_LIBRARIES})

# xxHash is header-only; Debian ships no CMake files for it.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
add_library(penstock_xxhash INTERFACE)
target_include_directories(penstock_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
target_compile_definitions(penstock_xxhash INTERFACE XXH_INLINE_ALL)

# CUDA is found or not; engine/exec/CMakeLists.txt picks the folder.
find_package(CUDAToolkit QUIET)
if(CUDAToolkit_FOUND)
  message(STATUS "CUDA toolkit ${CUDAToolkit_VERSION} found: GPUs are listed")
else()
  message(STATUS "No CUDA toolkit: building without GPU support")
endif()

if(NOT PENSTOCK_ENGINE_ONLY)
  find_package(spdlog REQUIRED)
  find_package(benchmark REQUIRED)
  find_package(SQLite3 REQUIRED)
  find_package(yaml-cpp REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(Protobuf REQUIRED)
  find_package(gRPC REQUIRED CONFIG)
  # google/rpc/{status,error_details}.proto: in no -dev package of Debian; PyPI's
  # googleapis-common-protos carries them and tools/install_deps unpacks it here.
  find_path(GOOGLEAPIS_PROTO_DIR google/rpc/error_details.proto
    PATHS ${PROJECT_SOURCE_DIR}/.deps/googleapis NO_DEFAULT_PATH)
  if(NOT GOOGLEAPIS_PROTO_DIR)
    message(FATAL_ERROR "google/rpc/error_details.proto not found: run tools/install_deps")
  endif()
endif()
