/* Rounding up to a power of two, as a constant expression. */
#define EACGM_SMEAR1(n) ((n) | ((n) >> 1))
#define EACGM_SMEAR2(n) (EACGM_SMEAR1(n) | (EACGM_SMEAR1(n) >> 2))
#define EACGM_SMEAR4(n) (EACGM_SMEAR2(n) | (EACGM_SMEAR2(n) >> 4))
#define EACGM_SMEAR8(n) (EACGM_SMEAR4(n) | (EACGM_SMEAR4(n) >> 8))
#define EACGM_SMEAR16(n) (EACGM_SMEAR8(n) | (EACGM_SMEAR8(n) >> 16))
#define roundup_pow_of_two(n) ((n) <= 1 ? 1UL : (EACGM_SMEAR16((unsigned long)(n) - 1) + 1))
