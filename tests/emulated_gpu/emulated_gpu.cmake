# The emulated GPU: all of lib/ as it is with CUDA, with our own runtime in the place of CUDA's, and
# the kernels run by the host (lib/ops/cuda/README.md). Its tests run in every build.
file(GLOB_RECURSE emulated_lib CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lib/*.cpp)
list(FILTER emulated_lib EXCLUDE REGEX "/lib/(base|text)/")  # which know no devices
file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lib/*/cuda/*.cu)
list(REMOVE_ITEM emulated_lib
     ${CMAKE_SOURCE_DIR}/lib/ops/cuda/dnn.cpp ${CMAKE_SOURCE_DIR}/lib/ops/cuda/convolve.cpp
     ${CMAKE_SOURCE_DIR}/lib/ops/cuda/fused_attention.cpp  # cuDNN
     ${CMAKE_SOURCE_DIR}/lib/tensor/cuda/libraries.cpp)  # what it would load is in the program
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS -Wno-unknown-pragmas)
file(GLOB emulator CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/emulated_gpu/*.cpp)
list(FILTER emulator EXCLUDE REGEX "_test[.]cpp$")
add_library(reelmesh_with_emulated_gpu STATIC ${emulated_lib} ${kernels} ${emulator})
target_include_directories(reelmesh_with_emulated_gpu BEFORE PUBLIC
  ${CMAKE_CURRENT_SOURCE_DIR}/emulated_gpu/include ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_definitions(reelmesh_with_emulated_gpu PUBLIC
  REELMESH_WITH_CUDA=1 REELMESH_EMULATED_GPU=1)
find_package(Threads REQUIRED)
target_link_libraries(reelmesh_with_emulated_gpu PUBLIC reelmesh_text Threads::Threads
  DNNL::dnnl OpenMP::OpenMP_CXX MPI::MPI_C nlohmann_json::nlohmann_json hdf5_parallel)

# The program as a user runs it, on emulated GPUs.
add_executable(reelmesh_emulated ${app_sources} ${CMAKE_SOURCE_DIR}/app/main.cpp)
target_link_libraries(reelmesh_emulated PRIVATE reelmesh_with_emulated_gpu Boost::program_options)
target_include_directories(reelmesh_emulated PRIVATE ${CMAKE_SOURCE_DIR}/app
                           ${CMAKE_BINARY_DIR}/generated)
target_compile_definitions(reelmesh_emulated PRIVATE REELMESH_INPUTS="${CMAKE_SOURCE_DIR}/inputs")
add_dependencies(reelmesh_emulated revision)

# What runs on a GPU, and what is true of the emulated one only.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/*_test.cpp
     ${CMAKE_CURRENT_SOURCE_DIR}/gpu/*_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/emulated_gpu/*_test.cpp)
add_executable(test_emulated_gpu ${sources})
target_link_libraries(test_emulated_gpu PRIVATE reelmesh_with_emulated_gpu GTest::gtest_main
                      GTest::gmock)
add_test(NAME emulated_gpu COMMAND test_emulated_gpu)
set_tests_properties(emulated_gpu PROPERTIES LABELS unit TIMEOUT 300 ENVIRONMENT OMP_NUM_THREADS=1)
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/gpu_ranks/*_test.cpp)
add_executable(test_emulated_gpu_ranks ${sources} support/mpi_main.cpp)
target_link_libraries(test_emulated_gpu_ranks PRIVATE reelmesh_with_emulated_gpu GTest::gtest)
target_compile_definitions(test_emulated_gpu_ranks PRIVATE
  REELMESH_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}/data")
# emulated_gpu_ranks(NAME RANKS VARIABLES…): a GPU a rank, unless the variables say otherwise; work is
# done late at random, so that what does not wait for it shows.
function(emulated_gpu_ranks name ranks)
  add_test(NAME emulated_gpu_${name}_n${ranks}
           COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks} $<TARGET_FILE:test_emulated_gpu_ranks>)
  set_tests_properties(emulated_gpu_${name}_n${ranks} PROPERTIES
    TIMEOUT 300 LABELS ranks PROCESSORS ${ranks}
    ENVIRONMENT "${mpi_environment};REELMESH_EMULATED_GPUS=8;REELMESH_EMULATED_GPU_DELAY=300;${ARGN}")
endfunction()
foreach(ranks 1 2 3 4 6 8)
  emulated_gpu_ranks(ranks ${ranks})
endforeach()
emulated_gpu_ranks(shared 3 REELMESH_EMULATED_GPUS=1)
emulated_gpu_ranks(shared_nccl 3 REELMESH_EMULATED_GPUS=1 NCCL_MULTI_RANK_GPU_ENABLE=1)
emulated_gpu_ranks(cuda_aware_mpi 3 REELMESH_EMULATED_CUDA_AWARE_MPI=1)

# The benchmark of GPUs, at tiny sizes: that it works, for here its times mean nothing.
add_executable(bench_emulated_gpu bench/gpu.cpp bench/gpu_layers.cpp)
target_link_libraries(bench_emulated_gpu PRIVATE reelmesh_with_emulated_gpu)
add_test(NAME bench_gpu COMMAND bench_emulated_gpu --tiny)
set_tests_properties(bench_gpu PROPERTIES TIMEOUT 300 LABELS unit
                     ENVIRONMENT "${mpi_environment};REELMESH_EMULATED_GPU_MEMORY=1073741824")
