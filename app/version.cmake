# Writes version.hpp with the project's version, git revision, compiler and flags, only when they
# changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12
                OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT revision)
  set(revision unknown)
endif()
set(changed false)
if(revision MATCHES "-dirty$")
  set(changed true)
  string(REGEX REPLACE "-dirty$" "" revision "${revision}")
endif()
string(REPLACE ";" " " FLAGS "${FLAGS}")
string(REPLACE "\"" "\\\"" FLAGS "${FLAGS}")
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[#pragma once
#define REELMESH_VERSION "@VERSION@"
#define REELMESH_REVISION "@revision@"
#define REELMESH_CHANGED @changed@
#define REELMESH_COMPILER "@COMPILER@"
#define REELMESH_FLAGS "@FLAGS@"
#define REELMESH_BUILD_TYPE "@BUILD_TYPE@"
#define REELMESH_SENTENCEPIECE "@SENTENCEPIECE@"
#define REELMESH_UTF8PROC "@UTF8PROC@"
]] @ONLY)
