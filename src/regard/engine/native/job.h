/* What a caller asks for: some rows of one head's map, and where the results go. library.py mirrors it field by field.
 *
 * Rows and keys count from the start of the head. A pointer that is NULL asks for nothing. All results are added to
 * what is there, so that one head can be read in several calls.
 */
#ifndef REGARD_JOB_H
#define REGARD_JOB_H

#include <stdint.h>

/* Keys first ... stop - 1. Where `allowed` is given, it holds one byte per pair from row `row_start` on. */
struct run {
    int64_t first, stop;
    const uint8_t *allowed;
    int64_t allowed_stride;
};

struct job {
    /* The part of the map: rows row_start ... row_stop - 1, and runs of keys in rising order. A row may be confined
     * further to the keys low[row] ... high[row] - 1. */
    int64_t row_start, row_stop, n_runs;
    const struct run *runs;
    const int64_t *low, *high;

    /* The scores: scale * q . k, or given, with score 0 of the row at key scores_first. A weight is exp(s - lse);
     * lse is +inf for a row that sees nothing. */
    const float *q, *k, *scores, *lse;
    int64_t q_stride, k_stride, dim, scores_stride, scores_first;
    double scale;

    /* One number per row: - sum w log w;  sum w (position of row - position of key);  the largest score, its key. */
    float *entropy, *distance, *peak;
    int64_t *peak_key;
    int64_t offset; /* the position of row 0 */

    /* sum_j w_ij g_j for n_columns columns g, each zero outside its keys support[2c] ... support[2c + 1] - 1. */
    float *sums;
    const float *columns;
    const int64_t *support;
    int64_t n_columns, columns_stride;

    /* The top_k largest weights of each row and their keys, largest first, of equal ones the earlier key. */
    float *top;
    int64_t *top_key;
    int64_t top_k;

    /* sum_i r_i w_ij, r_i = 1 unless given, at column_sums[key];  sums along diagonals, at diagonals[key - row]. */
    float *column_sums, *diagonals;
    const float *row_weights;

    /* max_i w_ij, at column_tops[key]. */
    float *column_tops;

    /* Sums and maxima over blocks of size x size cells; the first row of blocks is that of row_start. */
    float *block_sums, *block_tops;
    int64_t size, block_stride;

    /* Attention itself: sum_j w_ij v_j and the log-sum-exp of each row. With `out` given, nothing is asked for but
     * what belongs to rows, `lse` is not read, and results are written, not added. */
    const float *v;
    float *out, *out_lse;
    int64_t v_stride, v_dim, out_stride;

    /* How different heads are. The members are jobs for the same rows of one head each, of which nothing is asked but
     * the sum of each row's weights; at divergence[a * n_members + b], a < b, goes the sum over all rows. */
    float *mass;
    const struct job *const *members;
    double *divergence;
    int64_t n_members;

    /* How many weights (or scores, if bins_of_scores) reach each border. */
    int64_t *bins;
    const float *borders;
    int64_t n_borders, bins_of_scores;
};

#endif
