/* Lends libFuzzer's functions of coverage to Atheris where libasan is loaded first.

   GCC's libasan has empty functions of the same names, and the first library wins: without this one
   libFuzzer would never learn which inputs reach something new. It is loaded before libasan. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static void forward(const char *name, const void *begin, const void *end) {
  const char *library = getenv("FUZZ_LIBFUZZER");
  void *loaded = library ? dlopen(library, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  void (*function)(const void *, const void *) = NULL;
  if (loaded) *(void **)&function = dlsym(loaded, name);
  if (function) function(begin, end);
}

void __sanitizer_cov_8bit_counters_init(uint8_t *begin, uint8_t *end) {
  forward("__sanitizer_cov_8bit_counters_init", begin, end);
}

void __sanitizer_cov_pcs_init(const uintptr_t *begin, const uintptr_t *end) {
  forward("__sanitizer_cov_pcs_init", begin, end);
}
