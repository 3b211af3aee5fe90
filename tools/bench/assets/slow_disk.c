/* A disk that needs two milliseconds more for every sync. Preloaded (LD_PRELOAD) into a server of the benchmark. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <time.h>

typedef int (*sync_fn)(int);

static void wait_two_ms(void) {
    struct timespec left = {0, 2000000};
    while (nanosleep(&left, &left) == -1 && errno == EINTR) {
    }
}

static int slowly(sync_fn sync, int fd) {
    int result = sync(fd);
    int error = errno;
    wait_two_ms();
    errno = error;
    return result;
}

int fsync(int fd) { return slowly((sync_fn)dlsym(RTLD_NEXT, "fsync"), fd); }

int fdatasync(int fd) { return slowly((sync_fn)dlsym(RTLD_NEXT, "fdatasync"), fd); }
