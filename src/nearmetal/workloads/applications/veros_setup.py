"""An idealised global ocean for Veros. It runs as a separate program: no module of nearmetal imports it.

It has two continents, a ridge, and a Southern Ocean that surrounds the globe. Wind and surface values are
computed by formulas, so that it needs no data. It writes one JSON object to the file --result: seconds of
each section, means, and by how much the changes of heat and salt differ from the fluxes through the surface.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

try:
    import numpy as np
    import veros
    from veros import VerosSetup, veros_routine
except ImportError as e:
    print(f"{sys.executable}: {e}; next: {sys.executable} -m pip install veros", file=sys.stderr)
    raise SystemExit(3) from e
from veros.core.operators import at, update
from veros.core.operators import numpy as npx

#: The grid ends before the poles, because the meridians meet there.
SOUTH, NORTH = -80.0, 80.0
#: Thickness of the uppermost and the lowest layer, metres.
TOP, BOTTOM = 50.0, 815.0
DAY = 86400.0
#: Slices without the ghost cells at the edges.
INNER = (slice(2, -2), slice(2, -2))
#: Time scale of the relaxation of surface values to their formulas, in seconds.
RESTORING = 30 * DAY


def layers(count: int) -> Any:
    """Return the thickness of each layer in metres, from the bottom up. It grows with the square of the
    layer's number."""
    depth = np.arange(count) / max(count - 1, 1)
    return (TOP + (BOTTOM - TOP) * depth**2)[::-1]


def surface_temperature(latitude: Any) -> Any:
    return -1.0 + 28.0 * np.cos(np.deg2rad(latitude)) ** 2


def surface_salinity(latitude: Any) -> Any:
    """Return the salinity at the surface. It is largest at a latitude of 25 degrees, where evaporation is
    strong."""
    return 34.5 + 1.5 * np.exp(-(((np.abs(latitude) - 25.0) / 12.0) ** 2))


def zonal_wind(latitude: Any) -> Any:
    """Return the eastward wind stress in N/m2: trade winds and westerlies, stronger in the south."""
    trades = -0.06 * np.exp(-(((np.abs(latitude) - 12.0) / 8.0) ** 2))
    return (
        trades + 0.16 * np.exp(-(((latitude + 50) / 12) ** 2)) + 0.09 * np.exp(-(((latitude - 45) / 11) ** 2))
    )


def ocean_floor(longitude: Any, latitude: Any, depth: float) -> Any:
    """Return the depth of the water in metres; 0 for land."""
    americas = (np.abs(longitude - 290 - 0.35 * latitude) < 16) & (latitude > -56)
    africa = (np.abs(longitude - 20) < 18) & (latitude > -36) & (latitude < 34)
    eurasia = (latitude > 34) & (longitude < 140)
    australia = (np.abs(longitude - 134) < 18) & (np.abs(latitude + 25) < 12)
    antarctica = latitude < -72
    ridge = 0.45 * np.exp(-(((longitude - 332) / 9) ** 2))
    water = depth * (1.0 - ridge)
    return np.where(americas | africa | eurasia | australia | antarctica, 0.0, water)


class GlobalOcean(VerosSetup):
    """The set-up of the model. No files are read: grid, floor and forcing are formulas of latitude, longitude
    and depth."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options = options
        self.came_in = {"temp": 0.0, "salt": 0.0}

    @veros_routine
    def set_parameter(self, state: Any) -> None:
        options, settings = self.options, state.settings
        settings.identifier = str(Path(options.output) / "ocean")
        settings.nx, settings.ny, settings.nz = options.nx, options.ny, options.nz
        coarse = max(360 / options.nx, (NORTH - SOUTH) / options.ny)
        # Half an hour and a day at 4 degrees; coarser grids gain nothing, for the Earth turns as fast.
        settings.dt_mom, settings.dt_tracer = 450 * min(coarse, 4), DAY / 4 * min(coarse, 4)
        settings.runlen = options.steps * settings.dt_tracer
        settings.x_origin, settings.y_origin = 360 / options.nx, SOUTH + (NORTH - SOUTH) / options.ny
        settings.coord_degree = settings.enable_cyclic_x = True
        settings.eq_of_state_type = 5
        settings.enable_hor_friction = settings.enable_hor_friction_cos_scaling = True
        settings.A_h = (coarse * settings.degtom) ** 3 * 2e-11
        settings.hor_friction_cosPower = 1
        settings.enable_implicit_vert_friction = settings.enable_bottom_friction = True
        settings.r_bot = 1e-5
        settings.enable_neutral_diffusion = settings.enable_skew_diffusion = True
        settings.K_iso_0 = settings.K_iso_steep = settings.K_gm_0 = 1000.0
        settings.iso_dslope, settings.iso_slopec = 1e-3, 4e-3
        settings.enable_tke = True
        settings.alpha_tke, settings.mxl_min, settings.tke_mxl_choice = 30.0, 1e-8, 2
        settings.kappaM_min, settings.kappaH_min = 2e-4, 2e-5
        settings.restart_output_filename = "{identifier}-{itt:0>6d}.restart.h5"
        settings.restart_frequency = options.checkpoint * settings.dt_tracer

    @veros_routine
    def set_grid(self, state: Any) -> None:
        vs, options = state.variables, self.options
        vs.dxt = update(vs.dxt, at[...], 360 / options.nx)
        vs.dyt = update(vs.dyt, at[...], (NORTH - SOUTH) / options.ny)
        vs.dzt = update(vs.dzt, at[...], layers(options.nz))

    @veros_routine
    def set_coriolis(self, state: Any) -> None:
        vs = state.variables
        turning = 2 * state.settings.omega * npx.sin(npx.deg2rad(vs.yt))
        vs.coriolis_t = update(vs.coriolis_t, at[...], turning[npx.newaxis, :])

    @veros_routine
    def set_topography(self, state: Any) -> None:
        vs = state.variables
        x, y = np.meshgrid(np.asarray(vs.xt) % 360, np.asarray(vs.yt), indexing="ij")
        thickness = np.asarray(vs.dzt)
        floor = ocean_floor(x, y, thickness.sum())
        above = np.cumsum(thickness[::-1])[::-1]  # depth of the water above the bottom of each layer
        lowest = 1 + (above[None, None, :] > floor[..., None] + 1e-6).sum(axis=-1)
        vs.kbot = update(vs.kbot, at[...], np.where(floor > 0, lowest, 0))

    @veros_routine
    def set_initial_conditions(self, state: Any) -> None:
        vs = state.variables
        latitude, depth = np.asarray(vs.yt), np.asarray(vs.zt)
        # Warm water at the surface, and cold water of one temperature below.
        warmth = np.exp(depth / 700.0)[None, None, :]
        temperature = 1.0 + (surface_temperature(latitude) - 1.0)[None, :, None] * warmth
        salinity = 34.7 + (surface_salinity(latitude) - 34.7)[None, :, None] * warmth
        vs.temp = update(vs.temp, at[...], (temperature * vs.maskT)[..., None])
        vs.salt = update(vs.salt, at[...], (salinity * vs.maskT)[..., None])
        stress = zonal_wind(latitude)[None, :] * vs.maskU[:, :, -1]
        vs.surface_taux = update(vs.surface_taux, at[...], stress)
        vs.forc_tke_surface = update(
            vs.forc_tke_surface, at[...], (np.abs(np.asarray(stress)) / state.settings.rho_0) ** 1.5
        )

    @veros_routine
    def set_forcing(self, state: Any) -> None:
        vs = state.variables
        rate = vs.dzt[-1] / RESTORING * vs.maskT[:, :, -1]
        latitude = np.asarray(vs.yt)[None, :]
        vs.forc_temp_surface = rate * (surface_temperature(latitude) - vs.temp[:, :, -1, vs.tau])
        vs.forc_salt_surface = rate * (surface_salinity(latitude) - vs.salt[:, :, -1, vs.tau])

    @veros_routine
    def set_diagnostics(self, state: Any) -> None:
        state.diagnostics["snapshot"].output_frequency = self.options.snapshot * state.settings.dt_tracer

    @veros_routine
    def after_timestep(self, state: Any) -> None:
        vs = state.variables
        area = np.asarray(vs.area_t)[INNER]
        for name, flux in (("temp", vs.forc_temp_surface), ("salt", vs.forc_salt_surface)):
            self.came_in[name] += float((np.asarray(flux)[INNER] * area).sum()) * state.settings.dt_tracer


def content(state: Any, name: str) -> tuple[float, float]:
    """Return (integral of a quantity over the volume, volume)."""
    vs = state.variables
    cells = volumes(state)
    values = np.asarray(getattr(vs, name))[..., int(vs.tau)][INNER]
    return float((values * cells).sum()), float(cells.sum())


def volumes(state: Any) -> Any:
    """Return the volume of water in each cell in m3."""
    vs = state.variables
    return (np.asarray(vs.area_t)[..., None] * np.asarray(vs.dzt) * np.asarray(vs.maskT))[INNER]


def current(state: Any) -> float:
    """Return the root mean square of the eastward velocity in m/s."""
    cells = volumes(state)
    east = np.asarray(state.variables.u)[..., int(state.variables.tau)][INNER]
    return float(np.sqrt((east**2 * cells).sum() / cells.sum()))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("nx", "ny", "nz", "steps", "snapshot", "checkpoint"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--result", required=True)
    options = parser.parse_args()
    ocean = GlobalOcean(options)
    ocean.setup()
    before = {name: content(ocean.state, name) for name in ocean.came_in}
    begin = time.perf_counter()
    ocean.run(show_progress_bar=False)
    seconds = time.perf_counter() - begin
    after = {name: content(ocean.state, name) for name in ocean.came_in}
    written = sum(p.stat().st_size for p in Path(options.output).glob("ocean*") if p.is_file())
    result = {
        "veros": veros.__version__,
        "steps": int(ocean.state.variables.itt),
        "run": seconds,
        "seconds": {name: timer.total_time for name, timer in ocean.state.timers.items()},
        "written": written,
        "means": {name: total / volume for name, (total, volume) in after.items()},
        "current": current(ocean.state),
        # Of the mean, in its unit: what is there beyond what was there and came in.
        "astray": {
            name: (after[name][0] - before[name][0] - ocean.came_in[name]) / volume
            for name, (_, volume) in before.items()
        },
    }
    Path(options.result).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
