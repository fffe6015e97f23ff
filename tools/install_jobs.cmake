# Installs job files and batch scripts with the absolute paths of the prefix, so that they work in
# any folder. Run by "cmake --install"; tools/install.cmake sets `source` and `generated`.
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_PREFIX NORMALIZE OUTPUT_VARIABLE prefix)
string(REGEX REPLACE "/$" "" prefix "${prefix}")
set(share ${prefix}/share/reelmesh)
foreach(kind inputs/*.cfg jobs/*.sbatch)
  file(GLOB files RELATIVE ${source} ${source}/${kind})
  foreach(file ${files})
    file(READ ${source}/${file} text)
    string(REPLACE build/reelmesh "${prefix}/bin/reelmesh" text "${text}")
    string(REPLACE tools/reelmesh- "${prefix}/bin/reelmesh-" text "${text}")
    # Not after "/", where it is the end of a path.
    string(REGEX REPLACE "([ =-])(inputs|jobs|tools)/" "\\1${share}/\\2/" text "${text}")
    file(WRITE ${generated}/${file} "${text}")
    cmake_path(GET file PARENT_PATH folder)
    file(INSTALL ${generated}/${file} DESTINATION ${share}/${folder})
  endforeach()
endforeach()
