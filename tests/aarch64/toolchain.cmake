# Cross-compiling for 64-bit ARM on Debian, with its libraries of that architecture beside those of this
# machine (dpkg --add-architecture arm64). What CMake asks a program, QEMU answers.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
set(libraries /usr/lib/aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig:/usr/share/pkgconfig)
# mpicc and h5pcc of that architecture would be programs of it.
set(MPI_C_COMPILER_INCLUDE_DIRS ${libraries}/openmpi/include)
set(MPI_C_HEADER_DIR ${libraries}/openmpi/include)
set(MPI_C_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY ${libraries}/openmpi/lib/libmpi.so)
set(HDF5_C_COMPILER_EXECUTABLE "")
set(HDF5_ROOT ${libraries}/hdf5/openmpi)
