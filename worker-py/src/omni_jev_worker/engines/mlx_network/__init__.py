"""The engine `mlx`: the network of a laya model in MLX."""
