# cmake --install build --prefix P, and cpack -G DEB in the build folder:
#
#   P/bin             the program; links to the tools for users
#   P/share/reelmesh  laid out as the repository: tools with the header that names spans, inputs,
#                     jobs, pages for users, licences
#   P/share/doc       the copyright file that Debian wants
#   P/share           the man page; completion for bash, zsh and fish
set(share share/reelmesh)
set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
    GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
# Libraries outside the system's folders are found where they were linked.
set_target_properties(reelmesh PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS reelmesh RUNTIME DESTINATION bin)

# Tools. Each finds its Python package beside itself, through a link in P/bin too.
file(GLOB tools RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS tools/reelmesh-*)
install(PROGRAMS ${tools} tools/convert_open_sora.py tools/tensorboard_training
        tools/make_training_clips tools/score_demo DESTINATION ${share}/tools)
install(DIRECTORY tools/reelmesh_results tools/open_sora tools/drawn_clips DESTINATION ${share}/tools
        FILES_MATCHING PATTERN *.py PATTERN *.js PATTERN *.css PATTERN *.html PATTERN *.json
        PATTERN py.typed PATTERN span_names.hpp PATTERN __pycache__ EXCLUDE)
# pip install P/share/reelmesh/tools
install(FILES tools/pyproject.toml tools/reelmesh_results_wheel.py DESTINATION ${share}/tools)
install(FILES lib/base/span_names.hpp DESTINATION ${share}/lib/base)  # the target of a link there
foreach(tool ${tools})
  cmake_path(GET tool FILENAME name)
  set(link ${CMAKE_BINARY_DIR}/generated/bin/${name})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/generated/bin)
  file(CREATE_LINK ../${share}/tools/${name} ${link} SYMBOLIC)
  install(FILES ${link} DESTINATION bin)
endforeach()

# Inputs, and pictures of pages.
install(DIRECTORY inputs/demo_model inputs/demo_image_model inputs/machines DESTINATION ${share}/inputs)
install(FILES inputs/demo_heldout.txt inputs/demo_prompts.txt inputs/prompts.txt inputs/prompts.jsonl
        inputs/tokenizer_text.txt
        inputs/demo.png inputs/demo_picture.png inputs/demo_train.png DESTINATION ${share}/inputs)
install(FILES tools/images/report.png tools/images/timeline.png DESTINATION ${share}/tools/images)
install(FILES tools/licences.md DESTINATION share/doc/reelmesh RENAME copyright)  # Debian wants no link

# Job files, batch scripts and pages for users name the files of the prefix instead of those of the
# repository.
set(pages README.md app/README.md app/comparison.md inputs/README.md inputs/training.md
    jobs/README.md jobs/clusters.md jobs/first_job.md jobs/gpus.md jobs/planning.md
    tools/README.md tools/licences.md tools/result_files.md)
install(FILES LICENSE DESTINATION ${share})
install(CODE "set(source \"${CMAKE_SOURCE_DIR}\")\nset(generated \"${CMAKE_BINARY_DIR}/generated\")
set(pages \"${pages}\")")
install(SCRIPT tools/install_jobs.cmake)
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  message(STATUS "No man page and completion are installed: CMAKE_CROSSCOMPILING_EMULATOR is not set")
else()
  install(CODE "set(program \"$<TARGET_FILE:reelmesh>\")\nset(emulator \"${CMAKE_CROSSCOMPILING_EMULATOR}\")")
  install(SCRIPT tools/install_printed.cmake)
endif()

# The Debian package. Libraries that are linked are found by dpkg-shlibdeps; mpirun, what the tools
# in Python import and what is loaded at run time are not.
set(CPACK_PACKAGE_NAME reelmesh)
set(CPACK_PACKAGE_VENDOR "reelmesh")
set(CPACK_PACKAGE_CONTACT "The reelmesh developers")
set(CPACK_PACKAGE_DESCRIPTION
"reelmesh is an MPI batch program that makes videos from text, images and
videos with CogVideoX, Wan and Open-Sora checkpoints. It distributes the text
encoder, the transformer and the autoencoder over the ranks of one machine or
of a cluster, and writes the clips to HDF5. Small checkpoints for a demo are
included.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_SET_DESTDIR ON)  # so that tools/install_jobs.cmake sees the final prefix
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
string(REGEX MATCH "^[0-9]+" libavformat_major "${libav_libavformat_VERSION}")
string(REGEX MATCH "^[0-9]+" libswscale_major "${libav_libswscale_VERSION}")
set(libav_packages "libavformat${libavformat_major}, libswscale${libswscale_major}")
set(CPACK_DEBIAN_PACKAGE_DEPENDS
    "openmpi-bin, python3, python3-h5py, python3-numpy, python3-pil, ${libav_packages}")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ffmpeg, fonts-dejavu-core, python3-matplotlib")
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
include(CPack)
