# The emulated GPU: the CUDA backend is compiled against our own runtime in place of CUDA's, and
# kernels run on the host (lib/ops/cuda/README.md); in builds without CUDA, sources that call the
# backend are compiled again with these calls (reelmesh_room in CMakeLists.txt). Its tests run in
# every build. The other sources of lib/ are linked as built for the program.
set(rooms_with_devices layout sampler ops comm tensor)
set(rooms_without_devices train pipeline forecast job inputs store plan models media weights text)  # in link order
file(GLOB emulated_lib CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lib/*/cuda/*.cpp)
if(NOT REELMESH_WITH_CUDA)
  foreach(room ${rooms_with_devices})
    get_target_property(callers reelmesh_${room}_device SOURCES)
    list(APPEND emulated_lib ${callers})
  endforeach()
endif()
file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lib/*/cuda/*.cu)
list(REMOVE_ITEM emulated_lib
     ${CMAKE_SOURCE_DIR}/lib/ops/cuda/dnn.cpp ${CMAKE_SOURCE_DIR}/lib/ops/cuda/convolve.cpp
     ${CMAKE_SOURCE_DIR}/lib/ops/cuda/fused_attention.cpp  # these use cuDNN
     ${CMAKE_SOURCE_DIR}/lib/tensor/cuda/libraries.cpp)  # emulated libraries are linked, not loaded
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS -Wno-unknown-pragmas)
file(GLOB emulator CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/emulated_gpu/*.cpp)
list(FILTER emulator EXCLUDE REGEX "_test[.]cpp$")
file(GLOB_RECURSE ops CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lib/ops/*.cpp)
# Compiled one by one: the ops, as in lib/, and sources that have names at file scope in common.
set_source_files_properties(
  ${ops} ${CMAKE_CURRENT_SOURCE_DIR}/emulated_gpu/nccl.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/emulated_gpu/fused_attention.cpp
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
find_package(Threads REQUIRED)
add_library(reelmesh_devices_emulated STATIC ${emulated_lib} ${kernels} ${emulator})
target_include_directories(reelmesh_devices_emulated BEFORE PUBLIC
  ${CMAKE_CURRENT_SOURCE_DIR}/emulated_gpu/include ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_definitions(reelmesh_devices_emulated PUBLIC
  REELMESH_WITH_CUDA=1 REELMESH_EMULATED_GPU=1)
target_link_libraries(reelmesh_devices_emulated PUBLIC
  reelmesh_base reelmesh_flags Threads::Threads DNNL::dnnl MPI::MPI_C)
target_precompile_headers(reelmesh_devices_emulated REUSE_FROM reelmesh_headers)

# All of lib/. Archives are named as files: linking the targets would also pull in their
# dependencies, the CUDA backend for real devices.
add_library(reelmesh_with_emulated_gpu INTERFACE)
foreach(room ${rooms_without_devices})
  target_link_libraries(reelmesh_with_emulated_gpu INTERFACE $<TARGET_FILE:reelmesh_${room}>)
endforeach()
list(TRANSFORM rooms_with_devices REPLACE "(.+)" "$<TARGET_FILE:reelmesh_\\1>" OUTPUT_VARIABLE archives)
list(JOIN archives "," archives)
target_link_libraries(reelmesh_with_emulated_gpu INTERFACE
  "$<LINK_GROUP:RESCAN,reelmesh_devices_emulated,${archives}>"
  PkgConfig::sentencepiece PkgConfig::utf8proc nlohmann_json::nlohmann_json hdf5_parallel
  PkgConfig::png PkgConfig::jpeg)

# The program on emulated GPUs. main.cpp and program.cpp are compiled again, as the latter reports
# what the program was built with.
add_executable(reelmesh_emulated ${CMAKE_SOURCE_DIR}/app/main.cpp ${CMAKE_SOURCE_DIR}/app/program.cpp)
target_link_libraries(reelmesh_emulated PRIVATE $<TARGET_FILE:reelmesh_options>
                      reelmesh_with_emulated_gpu Boost::program_options)
target_include_directories(reelmesh_emulated PRIVATE ${CMAKE_SOURCE_DIR}/app
                           ${CMAKE_BINARY_DIR}/generated)
target_include_directories(reelmesh_emulated SYSTEM PRIVATE ${libav_INCLUDE_DIRS})
target_precompile_headers(reelmesh_emulated REUSE_FROM reelmesh_headers)
add_dependencies(reelmesh_emulated revision reelmesh_options)

# Shared by these tests, like reelmesh_test_support in tests/CMakeLists.txt.
add_library(reelmesh_emulated_test INTERFACE)
target_link_libraries(reelmesh_emulated_test INTERFACE
  $<TARGET_FILE:reelmesh_options> reelmesh_with_emulated_gpu Boost::program_options GTest::gtest
  GTest::gmock)
target_include_directories(reelmesh_emulated_test INTERFACE ${CMAKE_SOURCE_DIR}/app)
target_compile_options(reelmesh_emulated_test INTERFACE ${test_optimisation})
target_compile_definitions(reelmesh_emulated_test INTERFACE
  REELMESH_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}/data" REELMESH_SOURCE="${CMAKE_SOURCE_DIR}")
add_library(reelmesh_emulated_mpi_main STATIC support/mpi_main.cpp)
target_link_libraries(reelmesh_emulated_mpi_main PUBLIC reelmesh_emulated_test)
target_precompile_headers(reelmesh_emulated_mpi_main PRIVATE
                          ${CMAKE_CURRENT_SOURCE_DIR}/support/headers.hpp)
add_dependencies(reelmesh_emulated_mpi_main reelmesh_options)
# reelmesh_emulated_test(NAME MAIN SOURCES…)
function(reelmesh_emulated_test name main)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE ${main} reelmesh_emulated_test)
  target_precompile_headers(${name} REUSE_FROM reelmesh_emulated_mpi_main)
endfunction()

# Communication of tensors between ranks.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/cuda/ranks/*_test.cpp)
reelmesh_emulated_test(test_emulated_gpu_ranks reelmesh_emulated_mpi_main ${sources})
# Tests that also run on a real GPU, and those of the emulation itself.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/cuda/*_test.cpp
     ${CMAKE_CURRENT_SOURCE_DIR}/emulated_gpu/*_test.cpp)
reelmesh_emulated_test(test_emulated_gpu GTest::gtest_main ${sources})
add_test(NAME emulated_gpu COMMAND ${low_priority} $<TARGET_FILE:test_emulated_gpu>)
set_tests_properties(emulated_gpu PROPERTIES LABELS unit TIMEOUT 1200 ENVIRONMENT OMP_NUM_THREADS=1)
# Kernels whose threads share memory, in random order: the same results, so no barrier is missing.
set(with_barriers "--gtest_filter=*Norm*:*Convolution*:*Digest*:*KeysMayComeInParts*:*AtRealSizes*:*AttentionBackward*:*TokenProducts*")
add_test(NAME emulated_gpu_order COMMAND ${low_priority} $<TARGET_FILE:test_emulated_gpu>
         "${with_barriers}:-*AttendsByTheFusedKernel*")
add_test(NAME emulated_gpu_order_all CONFIGURATIONS Long
         COMMAND ${low_priority} $<TARGET_FILE:test_emulated_gpu> ${with_barriers})
set_tests_properties(emulated_gpu_order emulated_gpu_order_all PROPERTIES LABELS unit TIMEOUT 600
                     ENVIRONMENT "OMP_NUM_THREADS=1;REELMESH_EMULATED_GPU_ORDER=7")
# Accuracy at real size on a real GPU; small sizes here.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ops/cuda/truth/*_test.cpp)
reelmesh_emulated_test(test_emulated_gpu_truth GTest::gtest_main ${sources})
add_test(NAME emulated_gpu_truth COMMAND ${low_priority} $<TARGET_FILE:test_emulated_gpu_truth>)
set_tests_properties(emulated_gpu_truth PROPERTIES LABELS unit TIMEOUT 600
                     ENVIRONMENT OMP_NUM_THREADS=1)
# Whole jobs in several layouts: weights of two model families; tests/long runs all.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/pipeline/layouts/*.cpp)
reelmesh_emulated_test(test_emulated_layouts reelmesh_emulated_mpi_main ${sources})

# emulated_gpu_ranks(NAME COUNTS VARIABLES…): groups of these numbers of ranks in one launch, with
# one GPU per rank unless the environment variables say otherwise. Random delays of work expose
# missing synchronization. A NAME that ends with _all is for tests/long.
function(emulated_gpu_ranks name counts)
  string(REGEX MATCH "[0-9]+$" all ${counts})
  set(when "")
  set(delay 100)
  if(name MATCHES "_all$")
    set(when CONFIGURATIONS Long)
    set(delay 300)
  endif()
  set(filter "")
  if(name MATCHES "nccl")  # with MPI it is no other case than GPUs of their own
    set(filter --gtest_filter=*nccl*:Transport.*)
    if(NOT name MATCHES "_all$")
      string(APPEND filter :-*Gradients*:*Encoder*)
    endif()
  elseif(name STREQUAL "memory")
    set(filter --gtest_filter=*MemoryOnGpu*)
  endif()
  add_test(NAME emulated_gpu_${name} ${when}
           COMMAND ${MPIEXEC_EXECUTABLE} -n ${all} $<TARGET_FILE:test_emulated_gpu_ranks>
                   --ranks=${counts} ${filter})
  set_tests_properties(emulated_gpu_${name} PROPERTIES
    TIMEOUT 300 LABELS ranks PROCESSORS ${places_of_ranks}
    ENVIRONMENT "${mpi_environment};REELMESH_EMULATED_GPUS=8;REELMESH_EMULATED_GPU_DELAY=${delay};${ARGN}")
endfunction()
emulated_gpu_ranks(ranks 3)
emulated_gpu_ranks(memory 1)
emulated_gpu_ranks(ranks_all 1,2,3,4,6,8)
emulated_gpu_ranks(shared_nccl 3 REELMESH_EMULATED_GPUS=1 NCCL_MULTI_RANK_GPU_ENABLE=1)
emulated_gpu_ranks(shared_nccl_all 3 REELMESH_EMULATED_GPUS=1 NCCL_MULTI_RANK_GPU_ENABLE=1)

# tests/long runs the GPU benchmark at tiny sizes to check that it works; its times mean nothing.
add_executable(bench_emulated_gpu EXCLUDE_FROM_ALL bench/gpu.cpp bench/gpu_engines.cpp
               bench/gpu_layers.cpp bench/gpu_products.cpp)
target_link_libraries(bench_emulated_gpu PRIVATE reelmesh_with_emulated_gpu)
add_test(NAME bench_gpu_all CONFIGURATIONS Long COMMAND bench_emulated_gpu --tiny)
set_tests_properties(bench_gpu_all PROPERTIES TIMEOUT 300 LABELS unit
                     ENVIRONMENT "${mpi_environment};REELMESH_EMULATED_GPU_MEMORY=1073741824")
