// Loaded with LD_PRELOAD: from the MEMORY_LIMIT_FROMth time on that this process looks for its cgroup,
// the limit of memory of each cgroup is the number in the file MEMORY_LIMIT, as if an administrator
// had lowered it, and what the cgroup uses is not known.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ends(const char* path, const char* end) {
  const size_t length = strlen(path), own = strlen(end);
  return length >= own && strcmp(path + length - own, end) == 0;
}

static FILE* opened(const char* call, const char* path, const char* mode) {
  FILE* (*next)(const char*, const char*) = (FILE * (*)(const char*, const char*)) dlsym(RTLD_NEXT, call);
  const char *limit = getenv("MEMORY_LIMIT"), *from = getenv("MEMORY_LIMIT_FROM");
  static int looked = 0;
  if (strcmp(path, "/proc/self/cgroup") == 0) ++looked;
  if (!limit || !from || looked < atoi(from)) return next(path, mode);
  if (ends(path, "/memory.max") || ends(path, "/memory.limit_in_bytes")) return next(limit, mode);
  if (ends(path, "/memory.current") || ends(path, "/memory.usage_in_bytes")) {
    errno = ENOENT;
    return NULL;
  }
  return next(path, mode);
}

FILE* fopen(const char* path, const char* mode) { return opened("fopen", path, mode); }
FILE* fopen64(const char* path, const char* mode) { return opened("fopen64", path, mode); }
