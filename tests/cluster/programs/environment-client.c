// A program without a launcher, which only reads its environment, like a training program in C that
// opens its own sockets. Prints the values, and fails if a number is missing or malformed.
#include <stdio.h>
#include <stdlib.h>

static int number(const char* name) {
  const char* text = getenv(name);
  char* end = NULL;
  const long value = text != NULL ? strtol(text, &end, 10) : -1;
  if (text == NULL || end == text || *end != '\0' || value < 0) {
    fprintf(stderr, "%s is %s\n", name, text != NULL ? text : "not set");
    exit(1);
  }
  return (int)value;
}

int main(void) {
  const char* address = getenv("MASTER_ADDR");
  if (address == NULL || *address == '\0') return 1;
  printf("%d/%d %d/%d %d %s:%d\n", number("RANK"), number("WORLD_SIZE"), number("LOCAL_RANK"),
         number("LOCAL_WORLD_SIZE"), number("NODE_RANK"), address, number("MASTER_PORT"));
  return 0;
}
