#include "cfd.h"

/* The exact solution. Each field has a constant, and coefficients of the powers 1 to 4 of each coordinate. */
typedef struct {
    double constant, xi[4], eta[4], zeta[4];
} Polynomial;

static const Polynomial solution[CFD_FIELDS] = {
    {2, {0, 5, 0.02, 0.5}, {0, 3, 0.01, 0.4}, {4, 0.5, 0.03, 0.3}},
    {1, {0, 1, 0.01, 0.4}, {0, 2, 0.03, 0.3}, {0, 3, 0.02, 0.5}},
    {2, {2, 0, 0.04, 0.3}, {0, 2, 0.03, 0.5}, {0, 3, 0.05, 0.4}},
    {2, {2, 0, 0.03, 0.2}, {0, 2, 0.05, 0.1}, {0, 3, 0.04, 0.3}},
    {5, {4, 0.1, 0.05, 0.1}, {3, 0.4, 0.04, 0.3}, {2, 0.3, 0.03, 0.2}},
};

static double powers(const double coefficient[4], double x) {
    return x * (coefficient[0] + x * (coefficient[1] + x * (coefficient[2] + x * coefficient[3])));
}

void cfd_exact(double xi, double eta, double zeta, double fields[CFD_FIELDS]) {
    for (int m = 0; m < CFD_FIELDS; m++) {
        const Polynomial *of = &solution[m];
        fields[m] = of->constant + powers(of->xi, xi) + powers(of->eta, eta) + powers(of->zeta, zeta);
    }
}
