# Finds what the CUDA backend needs. Sets REELMESH_WITH_CUDA, and REELMESH_CUDA_LIBRARIES to link.
#
#   REELMESH_CUDA=AUTO                  built if nvcc and all headers are found
#   REELMESH_CUDA=ON                    built; an error if something is missing
#   REELMESH_CUDA=OFF                   not built
#
# The CUDA runtime is linked statically. cuBLASLt, cuDNN and NCCL are loaded when a process first
# needs them (lib/tensor/cuda/libraries.hpp); the build uses only their headers.
#
#   REELMESH_CUDA_ARCHITECTURES=AUTO    for the GPUs of this machine, or 8.0 and 9.0 if it has none
#   REELMESH_CUDA_ARCHITECTURES=ALL     for all that are supported: 7.5, 8.0, 8.9 and 9.0
#   REELMESH_CUDA_ARCHITECTURES=80;90   for these
#
# The last architecture is also compiled to PTX, for newer GPUs.
#
#   REELMESH_CUDA_LINES=ON              kernels know their source lines, for compute-sanitizer and
#                                       Nsight Compute. The code is the same; the program then has
#                                       the path of the source folder in it
set(REELMESH_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON or OFF")
set_property(CACHE REELMESH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(REELMESH_CUDA_ARCHITECTURES AUTO CACHE STRING "GPUs to compile for: AUTO, ALL, or a list: 80;90")
option(REELMESH_CUDA_LINES "Kernels know their source lines" OFF)
set(REELMESH_WITH_CUDA OFF)
set(REELMESH_CUDA_LIBRARIES "")
if(NOT REELMESH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "REELMESH_CUDA is '${REELMESH_CUDA}', expected AUTO, ON or OFF")
endif()
if(REELMESH_CUDA STREQUAL "OFF")
  return()
endif()
if(REELMESH_SANITIZE AND REELMESH_CUDA STREQUAL "AUTO")
  return()  # for device code use compute-sanitizer
endif()

set(missing "")
include(CheckLanguage)
find_program(REELMESH_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH PATHS /usr/local/cuda/bin)
if(REELMESH_NVCC AND NOT CMAKE_CUDA_COMPILER)
  set(ENV{CUDACXX} ${REELMESH_NVCC})
endif()
if(NOT DEFINED ENV{CUDAHOSTCXX})
  set(ENV{CUDAHOSTCXX} ${CMAKE_CXX_COMPILER})
endif()
# The GPUs of this machine, as "80;90".
set(REELMESH_GPUS "")
find_program(REELMESH_NVIDIA_SMI nvidia-smi)
mark_as_advanced(REELMESH_NVIDIA_SMI)
if(REELMESH_NVIDIA_SMI)
  execute_process(COMMAND ${REELMESH_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    string(REGEX MATCHALL "[0-9]+[.][0-9]" REELMESH_GPUS "${found}")
    list(TRANSFORM REELMESH_GPUS REPLACE "[.]" "")
    list(REMOVE_DUPLICATES REELMESH_GPUS)
    list(SORT REELMESH_GPUS COMPARE NATURAL)
  endif()
endif()
set(architectures ${REELMESH_CUDA_ARCHITECTURES})
if(architectures STREQUAL "ALL")
  set(architectures 75 80 89 90)
elseif(architectures STREQUAL "AUTO")
  set(architectures ${REELMESH_GPUS})
  # Code for both, since PTX needs a driver that is not older than the toolkit.
  if(NOT architectures)
    set(architectures 80 90)
  endif()
endif()
list(TRANSFORM architectures APPEND "-real" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
list(GET architectures -1 newest)
list(APPEND CMAKE_CUDA_ARCHITECTURES "${newest}-virtual")
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
    list(APPEND missing "nvcc 12.0 or newer (found ${CMAKE_CUDA_COMPILER_VERSION})")
  endif()
  # The module of CMake 3.25 sets a property of a library that CUDA 13 no longer has, unless the
  # project's minimum is an older CMake.
  set(required ${CMAKE_MINIMUM_REQUIRED_VERSION})
  set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
  find_package(CUDAToolkit)
  set(CMAKE_MINIMUM_REQUIRED_VERSION ${required})
  if(NOT TARGET CUDA::cudart_static)
    list(APPEND missing "the static CUDA runtime library")
  endif()
else()
  list(APPEND missing "a working nvcc")
endif()
set(headers "")
foreach(header cublasLt cudnn nccl nvtx3/nvToolsExt)
  find_path(REELMESH_${header}_INCLUDE ${header}.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  mark_as_advanced(REELMESH_${header}_INCLUDE)
  if(NOT REELMESH_${header}_INCLUDE)
    list(APPEND missing ${header}.h)
  endif()
  list(APPEND headers ${REELMESH_${header}_INCLUDE})
endforeach()
mark_as_advanced(REELMESH_NVCC)
list(JOIN missing ", " missing)
if(missing)
  if(REELMESH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "REELMESH_CUDA is ON, but not found: ${missing}")
  endif()
  message(STATUS "CUDA backend: not built; not found: ${missing}")
  return()
endif()
message(STATUS "CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")

set(REELMESH_WITH_CUDA ON)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know C++20 for nvcc
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
add_library(reelmesh_cuda INTERFACE)
set(REELMESH_CUDA_LIBRARIES reelmesh_cuda)
target_compile_definitions(reelmesh_cuda INTERFACE REELMESH_WITH_CUDA=1
  REELMESH_CUDA_LIBRARY_FOLDER="${CUDAToolkit_LIBRARY_DIR}")
target_include_directories(reelmesh_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS} ${headers})
target_link_libraries(reelmesh_cuda INTERFACE CUDA::cudart_static)
# -fmad=false: products and sums are rounded separately, as on the CPU. Also in kernels whose bits
# differ from the CPU's: they compute several rows in unrolled loops, which nvcc might contract
# differently, and the layout decides which of them computes a row. Where fused multiply-adds save
# time, they are written as fmaf or std::fma. FMT_USE_CONSTEXPR: fmt 9 assumes that nvcc has no
# constexpr.
# -Xptxas -v: registers and spills, which ptxas.sh writes beside each object for a test.
target_compile_options(reelmesh_cuda INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1
    $<$<BOOL:${REELMESH_CUDA_LINES}>:-lineinfo> -Xptxas=-v>)
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/ptxas.sh)
