// Loaded with LD_PRELOAD: files below the folder NO_LOCKS_BELOW cannot be locked, as on a network
// file system without a lock service.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_lock(int command) {
  return command == F_GETLK || command == F_SETLK || command == F_SETLKW ||
         command == F_OFD_GETLK || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

static int is_below(int file, const char* folder) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (folder == NULL || length < 0) return 0;
  path[length] = '\0';
  return strncmp(path, folder, strlen(folder)) == 0;
}

static int call(const char* name, int file, int command, void* argument) {
  if (is_lock(command) && is_below(file, getenv("NO_LOCKS_BELOW"))) {
    errno = ENOLCK;
    return -1;
  }
  int (*next)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, name);
  return next(file, command, argument);
}

#define DEFINE(name)                             \
  int name(int file, int command, ...) {         \
    va_list arguments;                           \
    va_start(arguments, command);                \
    void* argument = va_arg(arguments, void*);   \
    va_end(arguments);                           \
    return call(#name, file, command, argument); \
  }
DEFINE(fcntl)
DEFINE(fcntl64)
