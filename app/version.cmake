# Writes version.hpp with the project's version and git revision, only when they changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12
                OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT revision)
  set(revision unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[#pragma once
#define REELMESH_VERSION "@VERSION@"
#define REELMESH_REVISION "@revision@"
]] @ONLY)
