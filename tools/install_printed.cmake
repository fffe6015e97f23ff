# Installs what the program prints of itself, so that it is of this program: the man page, and completion
# for shells where these look for it. Run by "cmake --install"; tools/install.cmake sets `program`, and
# `emulator` if the program is for another kind of machine (CMAKE_CROSSCOMPILING_EMULATOR).
function(install_printed file)
  cmake_path(GET file FILENAME name)
  cmake_path(GET file PARENT_PATH folder)
  execute_process(COMMAND ${emulator} ${program} ${ARGN} OUTPUT_FILE ${generated}/${name}
                  COMMAND_ERROR_IS_FATAL ANY)
  file(INSTALL ${generated}/${name} DESTINATION ${prefix}/share/${folder})
endfunction()
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_PREFIX NORMALIZE OUTPUT_VARIABLE prefix)
set(zsh_functions zsh/site-functions)
if(prefix MATCHES "^/usr/?$" AND EXISTS /etc/debian_version)
  set(zsh_functions zsh/vendor-completions)  # in Debian's packages
endif()
install_printed(man/man1/reelmesh.1 help --man)
install_printed(bash-completion/completions/reelmesh completion bash)
install_printed(${zsh_functions}/_reelmesh completion zsh)
install_printed(fish/vendor_completions.d/reelmesh.fish completion fish)
