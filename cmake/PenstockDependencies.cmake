# Everything comes from the distribution or PyPI; docs/dependencies.md has the reason for each.
include_guard()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(GTest REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
find_package(OpenBLAS REQUIRED CONFIG)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

add_library(penstock_openblas INTERFACE)
target_include_directories(penstock_openblas SYSTEM INTERFACE ${OpenBLAS_INCLUDE_DIRS})
target_link_libraries(penstock_openblas INTERFACE ${OpenBLAS_LIBRARIES})

# xxHash is header-only; Debian ships no CMake files for it.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
add_library(penstock_xxhash INTERFACE)
target_include_directories(penstock_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
target_compile_definitions(penstock_xxhash INTERFACE XXH_INLINE_ALL)

# Debian's Oniguruma and utf8proc come without CMake files.
find_path(ONIGURUMA_INCLUDE_DIR oniguruma.h REQUIRED)
find_library(ONIGURUMA_LIBRARY onig REQUIRED)
add_library(penstock_oniguruma INTERFACE)
target_include_directories(penstock_oniguruma SYSTEM INTERFACE ${ONIGURUMA_INCLUDE_DIR})
# Oniguruma exports regcomp and its kin with a meaning of its own. Whoever calls those is to get the C
# library's, which therefore comes first in the order in which symbols are looked up.
target_link_libraries(penstock_oniguruma INTERFACE
  "-Wl,--push-state,--no-as-needed -l:libc.so.6 -Wl,--pop-state" ${ONIGURUMA_LIBRARY})
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h REQUIRED)
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
add_library(penstock_utf8proc INTERFACE)
target_include_directories(penstock_utf8proc SYSTEM INTERFACE ${UTF8PROC_INCLUDE_DIR})
target_link_libraries(penstock_utf8proc INTERFACE ${UTF8PROC_LIBRARY})

# Debian's ISA-L comes without CMake files.
find_path(ISAL_INCLUDE_DIR isa-l/crc.h REQUIRED)
find_library(ISAL_LIBRARY isal REQUIRED)
add_library(penstock_isal INTERFACE)
target_include_directories(penstock_isal SYSTEM INTERFACE ${ISAL_INCLUDE_DIR})
target_link_libraries(penstock_isal INTERFACE ${ISAL_LIBRARY})

if(NOT PENSTOCK_ENGINE_ONLY)
  find_path(SECCOMP_INCLUDE_DIR seccomp.h REQUIRED)
  find_library(SECCOMP_LIBRARY seccomp REQUIRED)
  add_library(penstock_seccomp INTERFACE)
  target_include_directories(penstock_seccomp SYSTEM INTERFACE ${SECCOMP_INCLUDE_DIR})
  target_link_libraries(penstock_seccomp INTERFACE ${SECCOMP_LIBRARY})
endif()

# CUDA is found or not: compiler and cuBLASLt, or nothing. Sanitizers do not mix with its runtime.
set(PENSTOCK_CUDA OFF)
if(NOT PENSTOCK_SANITIZE)
  include(CheckLanguage)
  check_language(CUDA)
endif()
if(CMAKE_CUDA_COMPILER AND NOT PENSTOCK_SANITIZE)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know that CUDA 13 has C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  find_package(CUDAToolkit QUIET)
  if(TARGET CUDA::cudart_static AND TARGET CUDA::cublasLt)
    set(PENSTOCK_CUDA ON)
  endif()
endif()
if(PENSTOCK_CUDA)
  message(STATUS "CUDA ${CUDAToolkit_VERSION} found: building the GPU backend")
else()
  message(STATUS "No CUDA toolkit with cuBLASLt: building without GPU support")
endif()

# cuDNN is needed at build time by its headers only: engine/cuda/cudnn_library.cc loads the library.
# Its frontend is headers alone, unpacked from PyPI by tools/install_deps.
set(PENSTOCK_CUDNN OFF)
if(PENSTOCK_CUDA)
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
    PATHS ${PROJECT_SOURCE_DIR}/.deps/cudnn-frontend/include NO_DEFAULT_PATH)
  if(CUDNN_INCLUDE_DIR AND CUDNN_FRONTEND_INCLUDE_DIR)
    set(PENSTOCK_CUDNN ON)
    add_library(penstock_cudnn_headers INTERFACE)
    target_include_directories(penstock_cudnn_headers SYSTEM INTERFACE
      ${CUDNN_FRONTEND_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR})
    # Errors come back as values, and nothing of the frontend's JSON is used.
    target_compile_definitions(penstock_cudnn_headers INTERFACE
      NV_CUDNN_DISABLE_EXCEPTION CUDNN_FRONTEND_SKIP_JSON_LIB)
    target_link_libraries(penstock_cudnn_headers INTERFACE ${CMAKE_DL_LIBS})
  else()
    message(STATUS "No cuDNN headers or no frontend (tools/install_deps): attention by our kernels")
  endif()
endif()

if(NOT PENSTOCK_ENGINE_ONLY)
  find_package(spdlog REQUIRED)
  find_package(benchmark REQUIRED)
  find_package(SQLite3 REQUIRED)
  find_package(yaml-cpp REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(Protobuf REQUIRED)
  find_package(gRPC REQUIRED CONFIG)
  find_package(OpenSSL REQUIRED)
  # The HTTP port: Asio and Beast, which are headers alone.
  find_path(BOOST_BEAST_INCLUDE_DIR boost/beast.hpp REQUIRED)
  add_library(penstock_asio INTERFACE)
  target_include_directories(penstock_asio SYSTEM INTERFACE ${BOOST_BEAST_INCLUDE_DIR})
  target_link_libraries(penstock_asio INTERFACE OpenSSL::SSL OpenSSL::Crypto Threads::Threads)
  # The chart library of the web page, embedded into the daemon.
  find_file(CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js NO_DEFAULT_PATH REQUIRED)
  # google/rpc/{status,error_details}.proto: in no -dev package of Debian; PyPI's
  # googleapis-common-protos carries them and tools/install_deps unpacks it here.
  find_path(GOOGLEAPIS_PROTO_DIR google/rpc/error_details.proto
    PATHS ${PROJECT_SOURCE_DIR}/.deps/googleapis NO_DEFAULT_PATH)
  if(NOT GOOGLEAPIS_PROTO_DIR)
    message(FATAL_ERROR "google/rpc/error_details.proto not found: run tools/install_deps")
  endif()
endif()
