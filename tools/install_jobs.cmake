# Installs job files, batch scripts and pages for users with the absolute paths of the prefix, so that
# they work in any folder; the scripts contain run_reelmesh.bash, so that they can be copied. Run by
# "cmake --install"; tools/install.cmake sets `source`, `generated` and `pages`.
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_PREFIX NORMALIZE OUTPUT_VARIABLE prefix)
string(REGEX REPLACE "/$" "" prefix "${prefix}")
set(share ${prefix}/share/reelmesh)
file(READ ${source}/jobs/run_reelmesh.bash rest)
foreach(kind inputs/*.cfg jobs/*.sbatch)
  file(GLOB found RELATIVE ${source} ${source}/${kind})
  list(APPEND files ${found})
endforeach()
foreach(file ${files} ${pages})
  file(READ ${source}/${file} text)
  if(file MATCHES "sbatch$")
    string(FIND "${text}" "# The rest is what the scripts share" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "${source}/${file}: found no line that sources run_reelmesh.bash, expected one")
    endif()
    string(SUBSTRING "${text}" 0 ${at} text)
    string(APPEND text "${rest}")
  endif()
  # Not after "/", where it is the end of a path.
  string(REGEX REPLACE "([^/a-z])build/reelmesh" "\\1${prefix}/bin/reelmesh" text "${text}")
  string(REGEX REPLACE "([^/a-z])tools/reelmesh-" "\\1${prefix}/bin/reelmesh-" text "${text}")
  string(REGEX REPLACE "([ =\n-])(inputs|jobs)/" "\\1${share}/\\2/" text "${text}")
  string(REGEX REPLACE "([ =\n-])tools/(convert_open_sora|make_training_clips|score_demo|tensorboard)"
         "\\1${share}/tools/\\2" text "${text}")
  if(file STREQUAL README.md)  # what only a clone has
    string(REGEX REPLACE "\n## For developers.*" "" text "${text}")
  endif()
  file(WRITE ${generated}/${file} "${text}")
  cmake_path(GET file PARENT_PATH folder)
  file(INSTALL ${generated}/${file} DESTINATION ${share}/${folder})
endforeach()
