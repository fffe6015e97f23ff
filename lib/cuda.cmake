# The CUDA backend, found or left out. Sets REELMESH_WITH_CUDA, and REELMESH_CUDA_LIBRARIES to link.
#
#   REELMESH_CUDA=AUTO                  built where nvcc, cuBLASLt, cuDNN and NCCL are found
#   REELMESH_CUDA=ON|OFF                an error where something is missing; not built
#
# OFF unless asked for: the libraries cost every process 200 MiB and 0.1 s when it starts, and
# `run` computes on the CPU until the pipeline runs on devices.
#
#   REELMESH_CUDA_ARCHITECTURES=80;90   fewer GPUs, and less time to compile
set(REELMESH_CUDA OFF CACHE STRING "CUDA backend: AUTO, ON or OFF")
set_property(CACHE REELMESH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(REELMESH_CUDA_ARCHITECTURES "75;80;89;90" CACHE STRING
    "GPUs to compile for; the last one also as PTX, for those that come after it")
set(REELMESH_WITH_CUDA OFF)
set(REELMESH_CUDA_LIBRARIES "")
if(NOT REELMESH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "REELMESH_CUDA is '${REELMESH_CUDA}', expected AUTO, ON or OFF")
endif()
if(REELMESH_CUDA STREQUAL "OFF")
  return()
endif()
if(REELMESH_SANITIZE AND REELMESH_CUDA STREQUAL "AUTO")
  return()  # compute-sanitizer is the tool for device code
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
list(TRANSFORM REELMESH_CUDA_ARCHITECTURES APPEND "-real" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
list(GET REELMESH_CUDA_ARCHITECTURES -1 newest)
list(APPEND CMAKE_CUDA_ARCHITECTURES "${newest}-virtual")
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
    list(APPEND missing "nvcc 12.0 or newer (found ${CMAKE_CUDA_COMPILER_VERSION})")
  endif()
  find_package(CUDAToolkit)
  if(NOT TARGET CUDA::cudart)
    list(APPEND missing "the CUDA runtime library")
  endif()
  if(NOT TARGET CUDA::cublasLt)
    list(APPEND missing cuBLASLt)
  endif()
else()
  list(APPEND missing "a working nvcc")
endif()
find_path(REELMESH_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(REELMESH_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NOT REELMESH_CUDNN_INCLUDE OR NOT REELMESH_CUDNN_LIBRARY)
  list(APPEND missing cuDNN)
endif()
find_path(REELMESH_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(REELMESH_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NOT REELMESH_NCCL_INCLUDE OR NOT REELMESH_NCCL_LIBRARY)
  list(APPEND missing NCCL)
endif()
mark_as_advanced(REELMESH_NVCC REELMESH_CUDNN_INCLUDE REELMESH_CUDNN_LIBRARY REELMESH_NCCL_INCLUDE
                 REELMESH_NCCL_LIBRARY)
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
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
add_library(reelmesh_cuda INTERFACE)
set(REELMESH_CUDA_LIBRARIES reelmesh_cuda)
target_compile_definitions(reelmesh_cuda INTERFACE REELMESH_WITH_CUDA=1)
target_include_directories(reelmesh_cuda SYSTEM INTERFACE
  ${CUDAToolkit_INCLUDE_DIRS} ${REELMESH_CUDNN_INCLUDE} ${REELMESH_NCCL_INCLUDE})
target_link_libraries(reelmesh_cuda INTERFACE CUDA::cudart CUDA::cublasLt
  ${REELMESH_CUDNN_LIBRARY} ${REELMESH_NCCL_LIBRARY})
# Sums and products are rounded one by one, as on the CPU; where a fused one is wanted it is written.
# fmt 9 takes nvcc for a compiler without constexpr.
target_compile_options(reelmesh_cuda INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1>)
