/* A ring's size is given in pages of this size. */
#define PAGE_SIZE 4096UL
